# Runs a test program under memcheck: valgrind.sh [timeout -k N SECONDS] PROGRAM... sh scripts, and the
# servers and helpers that a program starts, run without it.
set -u

case $* in
*.sh) exec "$@" ;;
esac
suppressions=$DIBS_TOP/test/support/valgrind.supp
while [ $# -gt 1 ]; do
    case $1 in
    timeout) shift ;;
    -k) shift 2 ;;
    *) limit=$1 && shift ;;
    esac
done
exec timeout -k 10 "${limit:-300}" valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
    --errors-for-leak-kinds=definite --fair-sched=yes --trace-children=no --child-silent-after-fork=yes \
    --suppressions="$suppressions" "$1"
