"""
Looks at pages of HTML in headless Chromium: browser.py CHROMIUM FOLDER WAYS PAGE...

The first page is opened as narrow as a telephone and as wide as a screen, light and dark. The others have a fault, of
the kind that begins their name, and are opened narrow and dark. What is wrong is printed, a line each: the file's name,
the width, the scheme, what kind of thing is wrong, and what. Chromium is driven over a pipe, in its own DevTools
protocol; its profile lies in FOLDER. WAYS is a file with the names of the sections that must be there.
"""
import json
import os
import select
import signal
import subprocess
import sys
import time

PATIENCE = 30  # seconds, for one answer

SCRIPT = r'''
(() => {
    const findings = [], add = (kind, what) => findings.push(`${kind}: ${what}`);
    const width = WIDTH, named = element => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
    const channel = part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const parts = colour => colour.match(/[\d.]+/g).map(Number);
    const light = colour => parts(colour).slice(0, 3).map(part => channel(part / 255))
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor;
            if ((parts(colour)[3] ?? 1) > 0)
                return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const contrast = element => {
        const style = getComputedStyle(element);
        const both = [light(element.closest('svg') ? style.fill : style.color), light(ground(element))];
        return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    };

    document.querySelectorAll('details').forEach(details => details.open = true);
    if (document.documentElement.scrollWidth > width)
        add('overflow', `the page is ${document.documentElement.scrollWidth} wide`);
    for (const element of document.querySelectorAll('body *')) {
        const box = element.getBoundingClientRect(), inside = element.parentElement.closest('pre');
        if (!inside && !element.matches('.skip') && box.width && (box.right > width + 1 || box.left < -1))
            add('overflow', `${named(element)} goes from ${box.left} to ${box.right}`);
        if (!['visible', 'auto', 'scroll'].includes(getComputedStyle(element).overflowX) && !element.closest('svg') &&
            element.scrollWidth > element.clientWidth + 1)
            add('overflow', `${named(element)} is cut`);
        const text = [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim());
        if (text && box.width && contrast(element) < 4.5)
            add('contrast', `${named(element)} has ${contrast(element).toFixed(1)}`);
    }
    const back = light(ground(document.body));
    if (SCHEME == 'dark' ? back > 0.1 : back < 0.9)
        add('scheme', `the background is ${ground(document.body)}`);

    for (const way of WAYS) {
        const section = document.querySelector(`main section#${way}`);
        if (!section || !section.querySelector('h3').getBoundingClientRect().height)
            add('way', `${way} has no section`);
        const link = document.querySelector(`table a[href="#${way}"]`);
        if (!link || !link.getBoundingClientRect().height)
            add('way', `${way} is not in the table`);
    }
    let level = 0;
    for (const heading of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
        if (heading.tagName[1] > level + 1)
            add('heading', `${named(heading)} follows one of level ${level}`);
        level = Number(heading.tagName[1]);
    }
    if (document.querySelectorAll('h1').length != 1 || !document.documentElement.lang)
        add('heading', 'one h1, and a language, are wanted');
    return findings;
})()
'''

# What has the focus: its place among all elements (-1: none), and how far its outline reaches.
FOCUS = r'''
(() => {
    const element = document.activeElement, style = getComputedStyle(element);
    return [element == document.body ? -1 : [...document.querySelectorAll('*')].indexOf(element),
            style.outlineStyle == 'none' ? 0 : parseFloat(style.outlineWidth), element.textContent.trim().slice(0, 40)];
})()
'''


class Chromium:
    def __init__(self, program, folder):
        to_browser, self.to = os.pipe()
        self.answers, from_browser = os.pipe()
        # Chromium reads its descriptor 3 and writes 4, which the shell makes of ours.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        home = {'HOME': folder, 'XDG_CONFIG_HOME': folder, 'XDG_CACHE_HOME': folder}
        self.log = open(os.path.join(folder, 'chromium.log'), 'wb')
        self.process = subprocess.Popen(
            ['bash', '-c', command, program, '--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--no-first-run', '--disable-extensions', '--disable-background-networking',
             '--disable-component-update', '--disable-sync', '--disable-breakpad', '--hide-scrollbars',
             '--host-resolver-rules=MAP * ~NOTFOUND', f'--user-data-dir={folder}/profile', 'about:blank'],
            pass_fds=(to_browser, from_browser), env={**os.environ, **home}, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.unread, self.number, self.session, self.requests, self.loaded = b'', 0, None, [], False

    def read(self):
        end = time.monotonic() + PATIENCE
        while b'\0' not in self.unread:
            ready = select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]
            piece = os.read(self.answers, 1 << 20) if ready else b''
            if not piece:
                raise RuntimeError('Chromium does not answer')
            self.unread += piece
        message, self.unread = self.unread.split(b'\0', 1)
        return json.loads(message)

    def notice(self, event):
        if event.get('method') == 'Network.requestWillBeSent':
            self.requests.append(event['params']['request']['url'])
        self.loaded |= event.get('method') == 'Page.loadEventFired'

    def ask(self, method, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        unsent = json.dumps(message).encode() + b'\0'
        while unsent:
            unsent = unsent[os.write(self.to, unsent):]
        while True:
            answer = self.read()
            if answer.get('id') != self.number:
                self.notice(answer)
            elif 'error' in answer:
                raise RuntimeError(f'{method}: {answer["error"]}')
            else:
                return answer['result']

    def value_of(self, script):
        result = self.ask('Runtime.evaluate', expression=script, returnByValue=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(result['exceptionDetails'])
        return result['result']['value']

    def attach(self):
        target = self.ask('Target.createTarget', url='about:blank')['targetId']
        self.session = self.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Network', 'Accessibility'):
            self.ask(f'{domain}.enable')

    def open(self, path, width, scheme):
        self.ask('Emulation.setDeviceMetricsOverride', width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.requests, self.loaded = [], False
        self.ask('Page.navigate', url=f'file://{path}')
        while not self.loaded:
            self.notice(self.read())

    def end(self):
        try:
            self.session = None
            self.ask('Browser.close')
            self.process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def hears(chromium):
    """What a screen reader is given."""
    nodes = [node for node in chromium.ask('Accessibility.getFullAXTree')['nodes'] if not node.get('ignored')]
    named = [(node['role']['value'], node.get('name', {}).get('value', '')) for node in nodes if 'role' in node]
    roles = [role for role, name in named]
    for role in ('banner', 'navigation', 'main', 'table', 'columnheader', 'rowheader', 'figure', 'image'):
        if role not in roles:
            yield f'there is no {role}'
    for role, name in named:
        if role == 'image' and len(name) < 20 or role in ('link', 'region', 'table', 'navigation') and not name:
            yield f'{role} "{name}" does not say what it is'


def goes_by_keyboard(chromium):
    """From one focus to the next, to the end of the page, seeing each."""
    last = -1
    for _ in range(1000):
        for kind in ('rawKeyDown', 'keyUp'):
            chromium.ask('Input.dispatchKeyEvent', type=kind, key='Tab', code='Tab', windowsVirtualKeyCode=9)
        place, outline, text = chromium.value_of(FOCUS)
        if place <= last:
            break
        if outline < 2:
            yield f'one does not see that the focus is on "{text}"'
        last = place
    if last < chromium.value_of("[...document.querySelectorAll('*')].indexOf([...document.links].pop())"):
        yield f'the last link is not reached from "{text}"'


def look(chromium, path, width, scheme, ways, keyboard):
    name = os.path.basename(path)
    chromium.open(path, width, scheme)
    script = SCRIPT.replace('WIDTH', str(width)).replace('SCHEME', repr(scheme)).replace('WAYS', json.dumps(ways))
    findings = chromium.value_of(script)
    findings += [f'reader: {what}' for what in hears(chromium)]
    if keyboard:
        findings += [f'keyboard: {what}' for what in goes_by_keyboard(chromium)]
    findings += [f'request: {url[:80]}' for url in chromium.requests
                 if url != f'file://{path}' and not url.startswith('data:')]
    for finding in findings:
        print(name, width, scheme, finding)
    print('looked at', name, width, scheme, flush=True)


def main():
    program, folder, names = sys.argv[1:4]
    chromium = Chromium(program, folder)
    try:
        chromium.attach()
        ways = open(names).read().split()
        page, *spoiled = [os.path.realpath(path) for path in sys.argv[4:]]
        for width in (400, 1400):
            for scheme in ('light', 'dark'):
                look(chromium, page, width, scheme, ways, keyboard=scheme == 'dark')
        for path in spoiled:
            look(chromium, path, 400, 'dark', ways, keyboard=os.path.basename(path).startswith('keyboard'))
    finally:
        chromium.end()


main()
