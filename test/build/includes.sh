# The direction of includes in src: api -> core -> store -> redis -> base. A folder may include itself and what stands to
# its right. cli stands apart: it includes itself and the public header. Of store/redis, only its own files and store/open.c
# know; of its redis.h, store/cluster does. No files stand in a circle. Each rule is also tried on a copy of the sources
# that breaks it.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"

# edges FOLDER: "FILE INCLUDED" for each include of the sources in that folder; files as they stand below it.
edges() {
    (cd "$1" && find . -name '*.[ch]' | sed 's,^\./,,' | sort | while read -r file; do
        sed -n "s|^ *# *include *[\"<]\([^\">]*\)[\">].*|$file \1|p" "$file"
    done)
}

# Each function prints what breaks its rule, and fails where something does.

has_one_direction() {
    edges "$1" | awk '
        BEGIN { count = split("base redis store core api", folders); for (i = 1; i <= count; i++) rank[folders[i]] = i }
        function folder(file) { sub("/.*", "", file); return file }
        folder($1) == "cli" { if (folder($2) in rank) { print $1 " includes " $2; bad = 1 } next }
        folder($2) == "cli" { print $1 " includes " $2; bad = 1 }
        !(folder($1) in rank) { print $1 " is in none of the folders"; bad = 1 }
        folder($2) in rank && rank[folder($2)] > rank[folder($1)] { print $1 " includes " $2; bad = 1 }
        END { exit bad || !NR }'
}

# An include that is not found below the folder would escape the other rules.
names_files_from_the_top() {
    (cd "$1" && grep -rn '^ *# *include *"' --include='*.[ch]' .) | sed 's/^\.\///' | awk -F '"' -v top="$1" '
        $2 !~ /^dibs[a-z_]*\.h$/ && system("test -f \"" top "/" $2 "\"") != 0 { print $0; bad = 1 }
        END { exit bad || !NR }'
}

hides_the_redis_store() {
    edges "$1" | awk '
        $2 ~ /^store\/redis\// && $1 !~ /^store\/redis\// && $1 != "store/open.c" &&
            !($1 ~ /^store\/cluster\// && $2 == "store/redis/redis.h") { print $1 " includes " $2; bad = 1 }
        END { exit bad || !NR }'
}

hides_hiredis() {
    edges "$1" | awk '
        $2 ~ /^(hiredis|openssl)/ && $1 !~ /^(redis|store\/redis)\// { print $1 " includes " $2; bad = 1 }
        END { exit bad || !NR }'
}

# Prints a circle of the edges "FROM TO" on standard input, and fails where there is one. Takes out what leads nowhere
# and what nothing leads to, again and again: from whatever is left, one way after another leads around.
finds_no_circle() {
    awk '
        { to[NR] = $2; from[NR] = $1; left[$1] = left[$2] = 1 }
        END {
            do {
                taken = 0
                split("", leads)
                split("", led)
                for (i = 1; i <= NR; i++)
                    if (from[i] in left && to[i] in left) {
                        leads[from[i]] = to[i]
                        led[to[i]] = 1
                    }
                for (one in left)
                    if (!(one in leads) || !(one in led)) {
                        delete left[one]
                        taken = 1
                    }
            } while (taken)
            for (at in left)
                break
            while (at in left && !(at in seen)) {
                seen[at] = 1
                at = leads[at]
            }
            for (way = first = at; at in seen; way = way " -> " at) {
                delete seen[at]
                at = leads[at]
            }
            if (first in left)
                print "a circle: " way
            exit first in left || !NR
        }'
}

has_no_circle_of_headers() {
    edges "$1" | awk '$1 ~ /\.h$/ && $2 ~ /\.h$/' | finds_no_circle
}

# A module is NAME.c with NAME.h; NAME_parts.h, which the files of NAME share, belongs to it, too. Only together with its
# circle could a file be read, tested or replaced.
has_no_circle_of_modules() {
    edges "$1" | sed -n 's/_parts\.h/.h/g; s/\.[ch] / /; s/\.h$//p' | awk '$1 != $2' | finds_no_circle
}

# notices RULE FILE INCLUDE...: whether the rule is broken in a copy where those files have those lines as well.
notices() {
    rule=$1
    shift
    rm -rf "$tmp/copy"
    cp -R "$DIBS_TOP/src" "$tmp/copy"
    while [ $# -gt 0 ]; do
        mkdir -p "$(dirname "$tmp/copy/$1")"
        echo "#include $2" >>"$tmp/copy/$1"
        shift 2
    done
    if "$rule" "$tmp/copy"; then
        echo "$rule says nothing of it"
        return 1
    fi
}

tap_plan 16
tap 'no file includes one of a folder to its left' has_one_direction "$DIBS_TOP/src"
tap 'each file is included by its name from src' names_files_from_the_top "$DIBS_TOP/src"
tap 'no header includes itself' has_no_circle_of_headers "$DIBS_TOP/src"
tap 'no sources include each other in a circle' has_no_circle_of_modules "$DIBS_TOP/src"
tap 'store/redis is known to itself and store/open.c alone' hides_the_redis_store "$DIBS_TOP/src"
tap 'hiredis and OpenSSL are known to redis and store/redis alone' hides_hiredis "$DIBS_TOP/src"
tap 'an include to the left is noticed' notices has_one_direction base/error.h '"core/lease.h"'
tap 'so is one of a folder that is not in the row' notices has_one_direction net/socket.c '<stdio.h>'
tap 'so is the inside of the library in the command' notices has_one_direction cli/main.c '"core/lease.h"'
tap 'so is the command in the library' notices has_one_direction core/lease.c '"cli/cli.h"'
tap 'so is a name that is relative to the file' notices names_files_from_the_top core/lease.h '"token.h"'
tap 'so is a circle of headers' notices has_no_circle_of_headers base/error.h '"base/circle.h"' base/circle.h '"base/error.h"'
tap 'so is one through sources' notices has_no_circle_of_modules core/lease.c '"core/asker.h"'
tap 'so is one through what the files of a module share' notices has_no_circle_of_modules \
    store/quorum/quorum_clock.c '"store/quorum/quorum_parts.h"'
tap 'so is store/redis in the memory store' notices hides_the_redis_store store/memory.c '"store/redis/store.h"'
tap 'so is hiredis in the memory store' notices hides_hiredis store/memory.c '<hiredis/hiredis.h>'
tap_end
