# The analysers find nothing in the sources. What they are not to look for, and why, stands in .clang-tidy and
# .cppcheck; the format in .clang-format.
# Needs: clang clang-tidy clang-format cppcheck
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
cd "$DIBS_TOP" || exit 1

jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
libraries=$(pkg-config --cflags hiredis cmocka)
includes='-Iinclude -Isrc -Idemo -Ibench -Itest'
[ ! -e /usr/include/zookeeper/zookeeper.h ] || libraries="$libraries -DDEMO_ZOOKEEPER" # one way of the gallery

sources() {
    find "$@" -name '*.c' | sort
}

# What takes the time is the analyser that follows the paths of each function. It gives a function up after so many states,
# by default after nine times as many: then it takes four times as long.
states=25000

# On standard error clang-tidy only counts the warnings that it suppressed.
tidies() {
    # shellcheck disable=SC2086
    sources "$@" | xargs -P "$jobs" -n 1 sh -c '
        flags=$0
        clang-tidy --quiet "$@" -- $flags 2>"$(mktemp "$TIDY_LOGS/XXXXXX")"' \
        "-std=c11 -D_GNU_SOURCE $includes $libraries -Xclang -analyzer-config -Xclang max-nodes=$states"
}

tidies_header() {
    clang-tidy --quiet include/dibs.h -- -xc -std=c11
}

# Mutexes are locked and fields read as their attributes in src say (src/base/mutex.h). Of two fields in one declaration
# the attribute guards the last alone, and clang does not tell.
keeps_to_its_mutexes() {
    grep -rnE '[[:alnum:]_]+(\[[[:alnum:]_]*\])?, \*?[[:alnum:]_]+(\[[[:alnum:]_]*\])? DIBS__GUARDED_BY' src && return 1
    # shellcheck disable=SC2086
    sources src | xargs -P "$jobs" -n 1 clang -std=c11 -D_GNU_SOURCE $includes $libraries \
        -Wthread-safety -Werror -fsyntax-only
}

checks() {
    # shellcheck disable=SC2086
    cppcheck --quiet -j "$jobs" --std=c11 --enable=warning,style,performance,portability --inline-suppr \
        --suppressions-list="$tmp/suppressions" --error-exitcode=1 -D_GNU_SOURCE -DDIBS_CHECKED $includes "$@"
}

# Versions of clang-format differ about tables of initializers, and the tests are full of those: the tests are checked
# only by the version that they were formatted with.
formatted() {
    folders='include src demo bench test/support/common'
    case $(clang-format --version) in *' version 14.'*) folders="$folders test" ;; esac
    # shellcheck disable=SC2086
    find $folders -name '*.[ch]' -o -name '*.[ch]pp' | sort | xargs clang-format --dry-run -Werror
}

TIDY_LOGS=$tmp/tidy
export TIDY_LOGS
mkdir "$TIDY_LOGS"
sed -e '/^#/d' -e '/^$/d' .cppcheck >"$tmp/suppressions"

tap_plan 9
tap 'clang: thread safety' keeps_to_its_mutexes
tap 'clang-tidy: the header' tidies_header
tap 'clang-tidy: src/base, src/api and src/store' tidies src/base src/api src/store
tap 'clang-tidy: src/core' tidies src/core
tap 'clang-tidy: src/cli' tidies src/cli
tap 'clang-tidy: src/redis' tidies src/redis
tap 'clang-tidy: the demo, the benchmarks, and what they have in common with the tests' tidies demo bench test/support/common
tap 'cppcheck' checks src demo bench test/support/common
tap 'clang-format' formatted
tap_end
