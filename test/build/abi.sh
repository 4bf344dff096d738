# The binary interface that the headers promise: that of the last release, or more. Each kind of change is also tried on a
# copy of the headers.
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
baseline=$DIBS_TOP/src/package/abi/baseline.xml

check() {
    sh "$DIBS_TOP/src/package/abi.sh" check "$1" "$baseline"
}

# changed SCRIPT: a copy of the headers that differs from ours as sed's SCRIPT says.
changed() {
    rm -rf "$tmp/include"
    cp -R "$DIBS_TOP/include" "$tmp/include"
    sed "$1" "$DIBS_TOP/include/dibs.h" >"$tmp/include/dibs.h"
    if cmp -s "$DIBS_TOP/include/dibs.h" "$tmp/include/dibs.h"; then return 1; fi
}

allows() {
    changed "$1"
    check "$tmp/include"
}

notices() {
    changed "$1"
    if check "$tmp/include"; then return 1; fi
}

tap_plan 10
tap 'nothing was removed or changed since the last release' check "$DIBS_TOP/include"
tap 'a new function may be added' allows \
    's/^DIBS_API dibs_status dibs_unlock_all(.*);$/&\nDIBS_API dibs_status dibs_another(dibs_runtime *rt, int64_t some);/'
tap 'so may a field in place of reserved words' allows \
    '/^typedef struct dibs_hold/,/^}/s/uint64_t reserved\[4\];/uint32_t some, more;\nuint64_t reserved[3];/'
tap 'so may a kind of event' allows 's/^ *DIBS_EVENT_NOT_HELD .*/DIBS_EVENT_NOT_HELD, DIBS_EVENT_ANOTHER/'
tap 'a function that is gone is noticed' notices '/^DIBS_API dibs_status dibs_unlock_all(/d'
tap 'so is another parameter' notices 's/^\(DIBS_API_CHECKED dibs_status dibs_timedlock(.*\)int64_t wait_ms/\1int32_t wait_ms/'
tap 'so is a field of another type' notices 's/^    uint32_t lease_ms; /    uint64_t lease_ms; /'
tap 'so is a field that takes none of the reserved words' notices \
    '/^typedef struct dibs_hold/,/^}/s/uint64_t reserved\[4\];/uint64_t some;\nuint64_t reserved[4];/'
tap 'so are fields that change places' notices \
    '/^typedef struct dibs_stats/,/^}/{s/uint64_t renewed;/uint64_t swapped;/;s/uint64_t lost;/uint64_t renewed;/;s/swapped/lost/;}'
tap 'so is a constant of another value' notices 's/^ *DIBS_EVENT_ORPHANED,.*//;s/^ *DIBS_EVENT_NOT_HELD .*/DIBS_EVENT_NOT_HELD, DIBS_EVENT_ORPHANED/'
tap_end
