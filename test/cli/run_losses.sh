# dibs run: a lease that is lost. The old COMMAND is dead before the next one starts.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/run_losses.py"
