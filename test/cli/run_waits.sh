# dibs run and dibs hold while they wait: outages of the store, what they say, and what ends the wait.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_waits.py"
