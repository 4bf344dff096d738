# The seeded bugs still fit the sources. Whether the tests notice them takes longer to find out: "make bugs".
# Needs: patch
# Priority: low
exec sh "$DIBS_TOP/test/fault/bugs/run" --check
