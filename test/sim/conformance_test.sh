# Whether the simulation's server answers as redis-server does.
# Builds: sim-build helpers
exec python3 -B "$DIBS_TOP/test/sim/conformance.py" "$DIBS_BUILD/sim/sim" "$DIBS_BUILD/sim/dibs.so" \
    "$DIBS_BUILD/test/fault/clock_shim.so" --seed 1 --commands 4000
