#!/bin/sh
# Draws the CSV files that the benchmarks left in a folder as SVG files beside them: sh bench/plots.sh [DIR]
# What was not measured is not drawn.
set -eu
cd "${1:-$(dirname "$0")/out}"
out=$PWD

gnuplot=${GNUPLOT:-gnuplot}

if ! command -v "$gnuplot" >/dev/null 2>&1; then
    echo "$out has the CSV files; for plots install gnuplot, then: sh bench/plots.sh $out"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# points TRANSPORT SIDE FIGURE: the number of threads, the median and its quartiles, of threads.csv. Of pairs a second
# the time for each.
points() {
    awk -F, -v transport="$1" -v side="$2" -v figure="$3" '
        $1 == transport && $3 == side && $4 == figure {
            split($2, cell, " ")
            if (figure == "pairs a second") print cell[1], 1e6 / $7, 1e6 / $9, 1e6 / $8
            else print cell[1], $7, $8, $9
        }' threads.csv
}

# sides FILE: those that it has, in their order.
sides() {
    awk -F, 'NR > 1 && !seen[$3]++ { print $3 }' "$1"
}

# begin PLOT: what all plots have in common; two panels, one for each transport.
begin() {
    cat <<END
set terminal svg size 1100,440 background rgb 'white' font 'Helvetica,13'
set output '$1.svg'
set multiplot layout 1,2
set grid
set key below
END
}

# panel KIND FILE...: FILE holds the points of a side, whose name stands in FILE.name.
panel() {
    style=$1
    shift
    separator=plot
    for file in "$@"; do
        [ -s "$file" ] || continue
        printf "%s '%s' %s title '%s'" "$separator" "$file" "$style" "$(cat "$file.name")"
        separator=,
    done
    echo
}

# over_threads PLOT FIGURE LABEL
over_threads() {
    {
        begin "$1"
        echo "set logscale x 2; set yrange [0:*]; set xlabel 'threads, each on a name of its own'; set ylabel '$3'"
        for transport in 'Unix socket' TCP; do
            echo "set title '$transport'"
            number=0
            sides threads.csv | while read -r side; do
                number=$((number + 1))
                file=$work/$1-${transport%% *}-$number
                points "$transport" "$side" "$2" >"$file"
                echo "$side" >"$file.name"
            done
            panel 'using 1:2:3:4 with yerrorlines linewidth 2' "$work/$1-${transport%% *}"-[0-9]
        done
    } >"$work/script"
    "$gnuplot" "$work/script"
    echo "$out/$1.svg"
}

percentiles() {
    {
        begin handover
        echo "set xlabel 'percentile of the hand-overs'; set ylabel 'us'; set logscale y"
        for transport in 'Unix socket' TCP; do
            echo "set title '$transport'"
            number=0
            sides handover-percentiles.csv | while read -r side; do
                number=$((number + 1))
                file=$work/handover-${transport%% *}-$number
                awk -F, -v transport="$transport" -v side="$side" '$1 == transport && $3 == side { print $4, $5 }' \
                    handover-percentiles.csv >"$file"
                echo "$side" >"$file.name"
            done
            panel 'using 1:2 with lines linewidth 2' "$work/handover-${transport%% *}"-[0-9]
        done
    } >"$work/script"
    "$gnuplot" "$work/script"
    echo "$out/handover.svg"
}

# Bars: for each number of threads and percentile a group, in it a bar for each side.
load() {
    awk -F, 'NR > 1 && $4 ~ /^p[0-9.]+ of a pair$/ {
        split($4, word, " "); split($2, threads, " "); group = threads[1] " " word[1]
        value[$1, group, $3] = $7
        if (!seen[$1, group]++) { order[++groups] = $1 SUBSEP group }
        if (!known[$3]++) side[++sides] = $3
    }
    END {
        for (g = 1; g <= groups; g++) {
            split(order[g], at, SUBSEP); file = work "/load-" (at[1] == "TCP" ? "TCP" : "Unix")
            if (!head[file]++) { printf "group" >file; for (s = 1; s <= sides; s++) printf ",%s", side[s] >file; print "" >file }
            printf "%s", at[2] >file
            for (s = 1; s <= sides; s++) printf ",%s", value[at[1], at[2], side[s]] >file
            print "" >file
        }
    }' work="$work" load.csv
    {
        begin load
        echo "set datafile separator ','; set style data histograms; set style fill solid 0.8; set logscale y"
        echo "set ylabel 'time of a pair at half of the highest load, us'; set boxwidth 0.9"
        echo "set xlabel 'number of threads, and percentile'; set xtics font ',11'"
        for transport in 'Unix socket' TCP; do
            file=$work/load-${transport%% *}
            [ -s "$file" ] || continue
            echo "set title '$transport'"
            columns=$(head -n 1 "$file" | awk -F, '{ print NF }')
            echo "plot for [i = 2:$columns] '$file' using i:xtic(1) title columnheader(i)"
        done
    } >"$work/script"
    "$gnuplot" "$work/script"
    echo "$out/load.svg"
}

if [ -f threads.csv ]; then
    over_threads threads-time 'pairs a second' 'time for each pair that all make together, us'
    over_threads threads-cpu 'client CPU of a pair' 'client CPU of a pair, us'
fi
[ ! -f handover-percentiles.csv ] || percentiles
[ ! -f load.csv ] || load
