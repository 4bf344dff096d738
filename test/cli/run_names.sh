# dibs run and dibs hold with several names.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_names.py"
