# Turns the Lua scripts into C: one array `const char dibs__lua_NAME[]` for each NAME.lua, without the comment lines,
# the blank ones and the indentation, so that Redis gets the code alone. A line `-- @include NAME` is replaced by the
# code of NAME.lua, once in a script; a script that others include gets no array. Only bytes of ASCII, and no long
# comment (--[[).
#
# Characters one by one, not string literals: a compiler need not take literals of more than 4095 bytes.

function fail(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why > "/dev/stderr"
    failed = 1
    exit 1
}

function emit_char(c) {
    if (c == "'" || c == "\\")
        return "'\\" c "',"
    return c == "\t" ? "'\\t'," : "'" c "',"
}

function emit_line(line,    i, out) {
    out = "    "
    for (i = 1; i <= length(line); i++)
        out = out emit_char(substr(line, i, 1))
    print out "'\\n',"
}

function emit_script(name, into,    i, other) {
    for (i = 1; i <= lines[name]; i++) {
        other = include[name, i]
        if (other == "")
            emit_line(code[name, i])
        else if (other in lines && !((into, other) in emitted)) {
            emitted[into, other] = 1
            emit_script(other, into)
        } else if (!(other in lines)) {
            printf "%s.lua includes %s.lua, which is not there\n", name, other > "/dev/stderr"
            failed = 1
        }
    }
}

FNR == 1 {
    name = FILENAME
    sub(/^.*\//, "", name)
    sub(/\.lua$/, "", name)
    names[++count] = name
    lines[name] = 0
}

{
    sub(/^[ \t]+/, "")
    sub(/[ \t\r]+$/, "")
}

/^--\[=*\[/ { fail("a long comment is not understood here") }
/[^\t -~]/ && !/^--/ { fail("not ASCII") }

/^-- @include / {
    include[name, ++lines[name]] = $3
    included[$3] = 1
    next
}

/^--/ || /^$/ { next }

{ code[name, ++lines[name]] = $0 }

END {
    if (failed)
        exit 1
    print "/* Generated from the Lua scripts. */"
    print "#include \"redis/scripts.h\""
    for (n = 1; n <= count; n++)
        if (!(names[n] in included)) {
            printf "\nconst char dibs__lua_%s[] = {\n", names[n]
            emit_script(names[n], names[n])
            print "    0,\n};"
        }
    exit failed
}
