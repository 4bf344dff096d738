# The short gallery ends by saying where its page is. The page has every way, is well formed, and asks nobody for anything.
# Builds: all
set -u
. "$DIBS_TOP/test/support/tap.sh"

makes_a_page() {
    page=$DIBS_TOP/demo/gallery.html
    rm -f "$page"
    sh "$DIBS_TOP/demo/run" --no-install >"$tmp/out" || {
        cat "$tmp/out"
        return 1
    }
    [ "$(tail -n 1 "$tmp/out")" = "The page of this run: $page" ]
    cp "$page" "$tmp/gallery.html"
    cp "$DIBS_TOP/build/demo/gallery.txt" "$tmp/results"
}

# Every tag is closed, every id is there once, and every link of the page leads to one; each way has its parts.
is_whole() {
    "$DIBS_TOP/build/demo/dibs-race" --list | sed -n 's/^ *[0-9][0-9]*  \([^ ]*\) .*/\1/p' >"$tmp/ways"
    [ -s "$tmp/ways" ]
    python3 -B - "$tmp/gallery.html" "$tmp/ways" <<'END_OF_SCRIPT'
import html.parser, re, sys

class Page(html.parser.HTMLParser):
    empty = {'meta', 'link', 'br'}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.parts = [], [], [], {}

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes['id']] if 'id' in attributes else []
        self.links += [attributes[name] for name in ('href', 'src') if name in attributes]
        if tag == 'section':
            self.section = attributes['id']
        if 'section' in self.open:
            self.parts.setdefault(self.section, []).append(tag)
        if tag == 'svg':
            assert 'aria-label' in attributes or 'aria-hidden' in attributes or 'overflow' in attributes, attributes
        if tag not in self.empty:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

text = open(sys.argv[1]).read()
page = Page()
page.feed(text)
assert not page.open, page.open
assert len(page.ids) == len(set(page.ids)), page.ids
for link in page.links:
    assert link == 'data:,' or link[0] == '#' and link[1:] in page.ids, link
for way in open(sys.argv[2]).read().split():
    # ZooKeeper is rarely installed: its way is shown nevertheless. With WATCH nobody is ever inside.
    shown = {'zookeeper': (), 'zookeeper-fence': (), 'watch': ('dl',)}.get(way, ('figure', 'dl'))
    for part in ('h3', 'p', 'details') + shown:
        assert part in page.parts[way], (way, part)
style = re.search('<style>(.*)</style>', text, re.S)[1]
assert style.count('{') == style.count('}')
assert not re.search(r'https?:|\burl\(|@import|<script', text)
END_OF_SCRIPT
}

refuses_bad_input() {
    echo 'something else' >"$tmp/other"
    for bad in '' "$tmp/none $tmp/page" "$tmp/other $tmp/page" "$tmp/results /none/page"; do
        # shellcheck disable=SC2086
        "$DIBS_TOP/build/demo/gallery" $bad >"$tmp/out" 2>"$tmp/errors" && return 1
        [ -s "$tmp/errors" ]
    done
}

tap_plan 3
tap 'a run and its page' makes_a_page
tap 'the page is whole, and needs nothing else' is_whole
tap 'what is wrong is refused' refuses_bad_input
tap_end
