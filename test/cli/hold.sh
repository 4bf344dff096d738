# dibs hold: holds a lock until a signal arrives, and tells systemd.
# Builds: cli
set -u
exec python3 -B "$DIBS_TOP/test/cli/hold.py"
