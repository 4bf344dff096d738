# Turns the Lua scripts into C: one array `const char dibs__lua_NAME[]` for each NAME.lua, without the comment lines,
# the blank ones and the indentation, so that Redis gets the code alone. A line `-- @insert NAME` is replaced by the code of
# NAME.lua; a script that others insert gets no array. Only bytes of ASCII, and no long comment (--[[).
#
# Characters one by one, not string literals: a compiler need not take literals of more than 4095 bytes.
#
# Beside each text is its SHA-1, `const char dibs__sha_NAME[]`, by which the server knows the script. POSIX awk has
# no operators for bits, so words of 32 bits are taken apart into nibbles.

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
    text = text line "\n"
    out = "    "
    for (i = 1; i <= length(line); i++)
        out = out emit_char(substr(line, i, 1))
    print out "'\\n',"
}

function emit_script(name,    i, other) {
    for (i = 1; i <= lines[name]; i++) {
        other = insert[name, i]
        if (other == "")
            emit_line(code[name, i])
        else if (other in lines)
            emit_script(other)
        else {
            printf "%s.lua inserts %s.lua, which is not there\n", name, other > "/dev/stderr"
            failed = 1
        }
    }
}

# ------------------------------------------------------------------- SHA-1

function init_sha(    i, a, b, place, both) {
    for (i = 1; i < 128; i++)
        code_of[sprintf("%c", i)] = i
    for (a = 0; a < 16; a++)
        for (b = 0; b < 16; b++)
            for (place = 1; place < 16; place *= 2) {
                both = int(a / place) % 2 + int(b / place) % 2
                and_of[a, b] += (both == 2) * place
                xor_of[a, b] += (both == 1) * place
            }
}

function by_nibbles(of, a, b,    place, result) {
    result = 0
    for (place = 1; place < WORD; place *= 16) {
        result += of[a % 16, b % 16] * place
        a = int(a / 16)
        b = int(b / 16)
    }
    return result
}

function xor32(a, b) { return by_nibbles(xor_of, a, b) }
function and32(a, b) { return by_nibbles(and_of, a, b) }

# To the left, by so many powers of two.
function rotate(x, power) { return x % (WORD / power) * power + int(x / (WORD / power)) }

# The word number i of the message: the text, a bit of 1, zeros, and how many bits the text has.
function message_word(i, words,    k, at, result) {
    result = 0
    for (k = 1; k <= 4; k++) {
        at = 4 * i + k
        result = result * 256 + (at <= length(text) ? code_of[substr(text, at, 1)] : at == length(text) + 1 ? 128 : 0)
    }
    return i == words - 1 ? 8 * length(text) : result
}

function sha1(    words, first, i, w, h, a, b, c, d, e, f, next_a) {
    h[0] = 1732584193; h[1] = 4023233417; h[2] = 2562383102; h[3] = 271733878; h[4] = 3285377520
    words = 16 * int((length(text) + 8) / 64 + 1)
    for (first = 0; first < words; first += 16) {
        a = h[0]; b = h[1]; c = h[2]; d = h[3]; e = h[4]
        for (i = 0; i < 80; i++) {
            w[i] = i < 16 ? message_word(first + i, words) : rotate(xor32(xor32(w[i-3], w[i-8]), xor32(w[i-14], w[i-16])), 2)
            if (i < 20)
                f = xor32(d, and32(b, xor32(c, d))) + 1518500249
            else if (i < 40)
                f = xor32(b, xor32(c, d)) + 1859775393
            else if (i < 60)
                f = and32(b, c) + and32(d, xor32(b, c)) + 2400959708
            else
                f = xor32(b, xor32(c, d)) + 3395469782
            next_a = (rotate(a, 32) + f + e + w[i]) % WORD
            e = d; d = c; c = rotate(b, 1073741824); b = a; a = next_a
        }
        h[0] = (h[0] + a) % WORD; h[1] = (h[1] + b) % WORD; h[2] = (h[2] + c) % WORD
        h[3] = (h[3] + d) % WORD; h[4] = (h[4] + e) % WORD
    }
    return hex(h[0]) hex(h[1]) hex(h[2]) hex(h[3]) hex(h[4])
}

# printf may have no %x for numbers beyond 2^31.
function hex(word) { return sprintf("%04x%04x", int(word / 65536), word % 65536) }

# ------------------------------------------------------------------ the files

BEGIN {
    WORD = 4294967296
    init_sha()
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

/^-- @insert / {
    insert[name, ++lines[name]] = $3
    inserted[$3] = 1
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
        if (!(names[n] in inserted)) {
            printf "\nconst char dibs__lua_%s[] = {\n", names[n]
            text = ""
            emit_script(names[n])
            print "    0,\n};"
            printf "\nconst char dibs__sha_%s[DIBS__SHA + 1] = \"%s\";\n", names[n], sha1()
        }
    exit failed
}
