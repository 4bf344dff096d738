# Completion of the command line.
set -u
exec python3 -B "$DIBS_TOP/test/cli/completion.py"
