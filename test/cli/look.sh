# dibs status, list and break.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/look.py"
