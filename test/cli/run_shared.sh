# dibs run and dibs hold with --shared and --slots.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_shared.py"
