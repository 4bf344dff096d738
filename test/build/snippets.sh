# The code in the documents, in the manual pages and in the comments of the headers compiles: see support/snippets.py for
# what counts as code, and what is put around it.
# Needs: gcc c++ clang
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
cd "$DIBS_TOP" || exit 1
warnings='-Wall -Wextra -Wpedantic -Werror -Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-function'

compiles() {
    case $1 in
    *.cpp) set -- "$1" "$(if grep -q co_await "$1"; then echo c++20; else echo c++17; fi)" g++ clang++ ;;
    *) set -- "$1" c11 gcc clang ;;
    esac
    for compiler in "$3" "$4"; do
        # shellcheck disable=SC2086
        "$compiler" -std="$2" -D_GNU_SOURCE $warnings -Iinclude -fsyntax-only "$1" || { cat -n "$1" && return 1; }
    done
}

extract() {
    folder=$tmp/$1
    shift
    mkdir "$folder"
    python3 -B test/support/snippets.py "$folder" "$@"
}

# Each kind of document, with a fault in it.
notices_faults() {
    printf '```c\nint main(void) { return dibs_lock(); }\n```\n' >"$tmp/whole.md"
    printf '```c\nstatic void f(dibs_runtime *rt)\n{\n    dibs_unlock(rt);\n}\n```\n' >"$tmp/function.md"
    printf '```cpp\ndibs::mutex m(rt);\n```\n' >"$tmp/body.md"
    printf '.Sh EXAMPLES\n.Bd -literal\nprintf("\\en");\ndibs_lock(rt);\n.Ed\n' >"$tmp/page.3"
    printf '/*\n * Text.\n *\n *   dibs_lock(rt); // waits\n *\n * More.\n */\n' >"$tmp/header.h"
    extract faults "$tmp"/*.md "$tmp/page.3" "$tmp/header.h" >"$tmp/faults.txt"
    [ "$(wc -l <"$tmp/faults.txt")" = 5 ]
    while read -r file document line; do
        if compiles "$file" >/dev/null 2>&1; then echo "$document: nothing is said of it" && return 1; fi
    done <"$tmp/faults.txt"
}

extract code README.md doc/*.md doc/man/*.3 include/*.h include/*.hpp >"$tmp/code.txt"
tap_plan $(($(wc -l <"$tmp/code.txt") + 2))
while read -r file document line; do
    tap "$document, line $line" compiles "$file"
done <"$tmp/code.txt"
some_of_each() {
    for document in README.md doc/man/ include/dibs.h include/dibs.hpp; do
        grep -F " $document" "$tmp/code.txt"
    done
}
tap 'README, manual pages and headers have some' some_of_each
tap 'code with a fault is noticed' notices_faults
tap_end
