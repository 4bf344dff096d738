# Whether the simulation's nodes of a cluster answer as those of redis-server do, while slots move.
# Builds: sim-build helpers
exec python3 -B "$DIBS_TOP/test/sim/conformance.py" "$DIBS_BUILD/sim/sim" "$DIBS_BUILD/sim/dibs.so" \
    "$DIBS_BUILD/test/fault/clock_shim.so" --seed 1 --commands 800 --cluster
