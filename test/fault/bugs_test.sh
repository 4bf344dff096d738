# The seeded bugs still fit the sources; whether they are noticed takes longer: "make bugs".
exec sh "$DIBS_TOP/test/fault/bugs/run" --check
