# The gallery's page in headless Chromium, as wide as a telephone and as a screen, light and dark: nothing reaches beyond
# the page or is cut, every way is there, what is written can be read, a screen reader is told what the pictures show, the
# keyboard goes everywhere, and the page asks nobody for anything. Each of these can fail: a page with that fault does.
# Builds: race
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/deps.sh"

makes_a_page() {
    make -C "$DIBS_TOP" BUILD=build SANITIZE= race
    "$DIBS_TOP/build/demo/dibs-race" --list | sed -n 's/^ *[0-9][0-9]*  \([^ ]*\) .*/\1/p' >"$tmp/ways"
    [ -s "$tmp/ways" ]
    "$DIBS_TOP/build/demo/dibs-race" --gallery --rounds 1 --threads 12 --delay 1 --work 1 --results "$tmp/results"
    "$DIBS_TOP/build/demo/gallery" "$tmp/results" "$tmp/page.html" "$DIBS_TOP"
}

# spoil NAME PATTERN TEXT: a page with a fault, NAME.html. The text takes the place of the pattern, once.
spoil() {
    python3 -B - "$tmp" "$@" <<'END_OF_SCRIPT'
import re, sys
folder, name, pattern, text = sys.argv[1:]
page, count = re.subn(pattern, lambda _: text, open(f'{folder}/page.html').read(), count=1, flags=re.S)
assert count == 1, pattern
open(f'{folder}/{name}.html', 'w').write(page)
END_OF_SCRIPT
}

spoils() {
    spoil overflow '<main>' '<main><p style="width: 100rem; max-width: none">wide</p>'
    spoil overflow-cut '<main>' '<main><p style="width: 3rem; overflow: hidden; white-space: nowrap">A long sentence</p>'
    spoil contrast '<main>' '<main><p style="color: #666">grey</p>'
    spoil contrast-picture 'svg .tick { fill: var\(--soft\);' 'svg .tick { fill: #666;'
    spoil scheme 'prefers-color-scheme: dark' 'prefers-color-scheme: none'
    spoil way '<section id="set-del".*?</section>' ''
    spoil way-table '<tr><th scope="row"><a href="#dibs">.*?</tr>' ''
    spoil heading '<h2 id="key">(.*?)</h2>' '<h4 id="key">Key</h4>'
    spoil reader 'role="img" aria-label="[^"]*"' 'role="img" aria-label="picture"'
    spoil keyboard '</style>' '*:focus { outline: none !important; }</style>'
    spoil keyboard-trap '<main>' '<main onfocusin="document.links[0].focus()">'
    spoil request '<main>' '<main><img src="http://127.0.0.1:9/pixel.png" alt="">'
    spoil request-file '<main>' '<main><img src="pixel.png" alt="">'
}

looks() {
    mkdir "$tmp/chromium"
    set -- "$tmp/page.html"
    for page in "$tmp"/*.html; do
        [ "$page" = "$1" ] || set -- "$@" "$page"
    done
    timeout 120 python3 -B "$DIBS_TOP/test/demo/browser.py" "$(deps_chromium)" "$tmp/chromium" "$tmp/ways" "$@" \
        >"$tmp/findings" || {
        tail -n 5 "$tmp/findings" "$tmp/chromium/chromium.log"
        return 1
    }
    [ "$(grep -c '^looked at page\.html ' "$tmp/findings")" = 4 ]
    [ "$(grep -c '^looked at ' "$tmp/findings")" = $(($# + 3)) ]
}

is_good() {
    grep -q '^looked at page\.html ' "$tmp/findings"
    if grep '^page\.html ' "$tmp/findings"; then return 1; fi
}

# The kind of a fault stands in its page's name.
finds_each_fault() {
    for page in "$tmp"/*.html; do
        name=$(basename "$page")
        kind=${name%.html}
        kind=${kind%%-*}
        [ "$kind" = page ] || grep -m 1 "^$name [0-9]* [a-z]* $kind: " "$tmp/findings" || {
            echo "not found: $name"
            return 1
        }
    done
}

tap_plan 5
tap 'a run and its page' makes_a_page
tap 'pages with a fault' spoils
tap 'Chromium looks at them' looks
tap 'the page is good at 400 and 1400 pixels, light and dark' is_good
tap 'each fault is found' finds_each_fault
tap_end
