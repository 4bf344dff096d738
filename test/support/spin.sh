# For the tests of a model that searches all its states with spin, to be read behind tap.sh with `.`: model is the file,
# memory how many MB a search may take, and options those of pan.

# search FOLDER SWITCHES OPTION: what pan says, in FOLDER/log. The option is one of the compiler: a search that ends with an
# error is mostly over sooner than its program could be optimized.
search() {
    mkdir -p "$tmp/$1"
    cd "$tmp/$1"
    cp "$model" model.pml
    # shellcheck disable=SC2086
    spin $2 -a model.pml
    "${CC:-cc}" -w "$3" -DSAFETY -DNOREDUCE -DMEMLIM="$memory" -o pan pan.c
    # shellcheck disable=SC2086
    ./pan $options >log 2>&1 || :
    grep -E 'pan:1|error|states, stored|memory usage' log
}

# sound FOLDER SWITCHES
sound() {
    search "$1" "$2" -O1
    grep -q ', errors: 0$' "$tmp/$1/log"
    grep -Eq '^[[:space:]]*assertion violations[[:space:]]*\+' "$tmp/$1/log"
    incomplete='not completed|too small|out of memory|memory limit|truncated|bit statespace|hash.compact'
    if grep -Eiq "$incomplete" "$tmp/$1/log"; then return 1; fi
}

# wrong SWITCHES WHAT: the first error is WHAT (a regular expression).
wrong() {
    folder=$(echo "$1" | tr ' ' _)
    search "$folder" "$1" -O0
    grep -Eq ', errors: 1$' "$tmp/$folder/log"
    grep -E '^pan:1: ' "$tmp/$folder/log" | grep -Eq "$2"
}
