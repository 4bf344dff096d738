# Completion of the command line.
# Needs: bash
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/completion.py"
