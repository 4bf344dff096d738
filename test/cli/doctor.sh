# dibs doctor.
set -u
exec python3 -B "$DIBS_TOP/test/cli/doctor.py"
