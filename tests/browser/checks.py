"""What the dashboard must show, and what it may cost."""

import http.client
import pathlib
import shutil
import subprocess
import threading
import time

import program
from browser import Browser
from selenium.webdriver.common.keys import Keys
from upstream import Upstream

TOKEN = "a-token-of-operators"
RETRY = {
    "provider": "mwl:provider.middleware/mwl/retry/v1",
    "onEntry": {"with": {"policies": [{"match": {"codes": ["Provider.Call.Http.Unavailable"]}, "attempts": 3, "backoff": {"initial": "PT0.2S", "rate": 2}}]}},
}
# A bound around all attempts, and one around each: neither fires.
AROUND, EACH = ({"provider": "mwl:provider.middleware/mwl/timeout/v1", "onEntry": {"with": {"duration": bound}}} for bound in ("PT30S", "PT2S"))
# Makes events without an upstream: a request dispatches so many calls, each of which starts and ends.
DISPATCHES = 50
EVENTS = 2 + 2 * DISPATCHES
MOCK = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": 1}}
FLOOD = {
    "entrypoint": "all",
    "steps": {
        "all": {"action": "Gather", "over": list(range(DISPATCHES)), "call": MOCK, "next": "end"},
        "end": {"action": "Return", "value": {"status": 200}},
    },
}
# How many events a second, how long in seconds, and how much scripts and the process may keep of them, in MiB.
RATE, SHORT, LONG, HEAP, RESIDENT = 5000, 2, 60, 6, 24


class Stand:
    """The proxies, the upstream and the browser."""

    def __init__(self, options, directory, axe):
        self.options, self.directory = options, directory
        self.upstream = Upstream()
        for name in ("main", "locked", "wide"):
            shutil.rmtree(directory / name, ignore_errors=True)
            (directory / name).mkdir(parents=True)
        routes = [
            {"name": "retried", "match": {"path": "/retried"}, "upstream": "app", "middleware": [AROUND, RETRY, EACH]},
            {"name": "mixed", "match": {"path": "/mixed"}, "upstream": "app"},
            {"name": "flood", "match": {"path": "/flood"}, "flow": FLOOD},
            {"name": "rest", "upstream": "app"},
        ]
        wide = [{"name": f"route-{n}", "match": {"pathPrefix": f"/service-{n}/v1"}, "upstream": "app", "middleware": [RETRY]} for n in range(500)]
        self.main = self.proxy("main", routes, recorded=True)
        self.locked = self.proxy("locked", routes, token=TOKEN)
        self.wide = self.proxy("wide", wide)
        # The first sample has them.
        send(self.main.port, "/mixed", times=20)
        self.browser = Browser(directory, axe)
        self.browser.look()
        self.browser.go(self.main.admin)

    def refresh(self):
        """The page asks anew, and has drawn what came."""
        before = self.browser.js("const before = turns; refresh(true); return before")
        self.browser.until("a refresh", "return turns > arguments[0] && !running", before)

    def proxy(self, name, routes, token=None, recorded=False):
        port, admin = program.free_ports(2)
        settings = {"address": f"127.0.0.1:{admin}", **({"token": token} if token else {})}
        config = {
            "listeners": [{"address": f"127.0.0.1:{port}"}],
            "admin": settings,
            "upstreams": {"app": {"endpoints": [f"http://127.0.0.1:{self.upstream.port}"]}},
            "limits": {"workers": 1},
            "routes": routes,
        }
        more = ["--record", str(self.directory / name / "recorded")] if recorded and records() else []
        return program.Proxy(config, self.directory / name, more=more)

    def close(self):
        self.browser.close()
        for proxy in (self.main, self.locked, self.wide):
            proxy.stop()
        self.upstream.close()

    def shot(self, name, whole=False):
        self.browser.shot(self.options.shots, name, whole)


def records():
    """Whether the program keeps recordings."""
    told = subprocess.run([program.binary(), "run", "--help"], capture_output=True, text=True)
    return "--record" in told.stdout


def send(port, path, method="GET", body=None, times=1):
    """The status of the last of some requests on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(times):
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
    connection.close()
    return answer.status


def row(path):
    """A script that finds the list's row of a path."""
    return f"[...document.querySelectorAll('#list tr')].find(row => row.querySelector('button').textContent.endsWith('{path}'))"


def check_failures(stand):
    """At 55% of failures a tile and the route are red."""
    browser = stand.browser
    tile = "const tile = [...document.querySelectorAll('.tile')].find(tile => tile.firstChild.textContent === 'Failed');"
    said = browser.until("the tile is red", tile + "return tile && tile.classList.contains('bad') && tile.innerText")
    assert "11 of " in said, said
    assert browser.js("return getComputedStyle([...document.querySelectorAll('.tile.bad b')][0]).color") == "rgb(179, 38, 30)"
    # Before it are only others that are red: the file has it as the second of four.
    rows = "return [...document.querySelectorAll('#routes-table tbody tr')].map(row => row.className + ' ' + row.querySelector('button').textContent)"
    shown = browser.js(rows)
    place = shown.index("tone-bad mixed")
    assert all(one.startswith("tone-bad") for one in shown[:place]), shown


def check_live(stand):
    """A request that is retried twice appears while it runs, as a timeline with two gaps."""
    browser = stand.browser
    browser.until("it listens", "return document.getElementById('live').getAttribute('aria-pressed') === 'true'")
    client = threading.Thread(target=send, args=(stand.main.port, "/retried"))
    client.start()
    browser.until("it is seen while it runs", f"const row = {row('/retried')}; return row && /running/.test(row.innerText)")
    browser.js(f"{row('/retried')}.querySelector('button').click()")
    drawn = "const svg = document.querySelector('#detail svg.timeline'); return svg && svg.querySelectorAll('.gap').length === 2 && svg.querySelectorAll('.running').length > 0"
    browser.until("its third attempt is drawn while it runs", drawn)
    stand.shot("live")
    client.join()
    ended = "const svg = document.querySelector('#detail svg.timeline'); return svg && !svg.querySelector('.running') && svg.querySelectorAll('.gap').length === 2 && svg.getAttribute('aria-label')"
    said = browser.until("its end is drawn", ended)
    assert said.startswith("3 attempts in ") and "503" in said and said.count("after") == 2, said
    browser.until("the list has its status", f"return /200/.test({row('/retried')}.innerText)")
    # To scale: the second wait is twice the first one.
    lengths = browser.js("return [...document.querySelectorAll('#detail .gap')].map(gap => gap.x2.baseVal.value - gap.x1.baseVal.value)")
    assert 1.8 < lengths[1] / lengths[0] < 2.2, lengths
    # The bounds that did not fire: one to the picture's end, and one for each attempt, of which the first takes 2 seconds to the third's 1.5.
    assert "the bound retried/0 of 30 s did not fire; the bound retried/2 of 2 s did not fire" in said, said
    kept = browser.js("return [...document.querySelectorAll('#detail .kept')].map(bound => [bound.getBBox().width, (bound.getAttribute('d').match(/V/g) || []).length])")
    bars = browser.js("return [...document.querySelectorAll('#detail svg.timeline rect')].map(bar => bar.width.baseVal.value)")
    assert [ends for _, ends in kept] == [1, 2, 1, 1], kept
    assert abs(kept[0][0] - bars[0]) < 2 and 1.2 < kept[1][0] / bars[3] < 1.45, (kept, bars)
    stand.shot("timeline")


def check_replay(stand):
    """Heads and bodies where they are recorded, and a replay that arrives."""
    browser = stand.browser
    if not records():
        assert browser.js("return ![...document.querySelectorAll('#detail button')].some(button => button.textContent === 'Send again')")
        return "this program records nothing: no button is shown"
    send(stand.main.port, "/paid", "POST", b'{"sum":7}')
    browser.until("it is listed", f"return {row('/paid')}")
    browser.js(f"{row('/paid')}.querySelector('button').click()")
    browser.until("its body is shown", "return /\"sum\":7/.test(document.getElementById('detail').innerText)")
    before = stand.upstream.seen["/paid"]
    browser.js("[...document.querySelectorAll('#detail button')].find(button => button.textContent === 'Send again').click()")
    browser.until("what came back is shown", "return /What came back now/.test(document.getElementById('detail').innerText)")
    assert stand.upstream.seen["/paid"] == before + 1
    stand.shot("replay", whole=True)
    browser.look()


def check_what_if(stand):
    """A question is answered: the timeline, what happens, and what the client gets; a mistake is told."""
    browser = stand.browser
    browser.js("document.getElementById('question-request').value = 'GET /retried'; document.getElementById('question-respond').value = '503*2\\n200@150ms'; document.querySelector('#question button').click()")
    said = browser.until("the answer", "const box = document.getElementById('answer'); return box.querySelector('svg.timeline') && box.innerText")
    assert "200 after 750 ms" in said and said.count("503") >= 2 and "waits 400 ms" in said, said
    stand.shot("what-if")
    browser.js("document.getElementById('question-respond').value = '999'; document.querySelector('#question button').click()")
    said = browser.until("the mistake", "const text = document.getElementById('answer').innerText; return /no response/.test(text) && text")
    assert "`999` is no response" in said, said
    browser.js("document.getElementById('question-respond').value = '503\\n200'; document.querySelector('#question button').click()")
    browser.until("the next answer", "return document.querySelector('#answer svg.timeline')")


def check_kept(stand):
    """Selection, scroll, focus and what is open stay over refreshes that bring new requests."""
    browser = stand.browser
    send(stand.main.port, "/kept", times=25)
    browser.until("they are listed", f"return {row('/kept')} && document.querySelectorAll('#list tr').length > 20")
    # What was listed by events first gets its record with the next refresh.
    stand.refresh()
    stand.refresh()
    browser.js("document.querySelector('#routes-table button').click()")
    marked = browser.js(
        """const region = document.querySelector('.list'); region.scrollTop = 260;
        const row = [...document.querySelectorAll('#list tr')].find(row => row.offsetTop > 340);
        const words = row.querySelector('span').firstChild, range = document.createRange();
        row.querySelector('button').focus({ preventScroll: true });
        range.selectNodeContents(words); getSelection().removeAllRanges(); getSelection().addRange(range);
        window.marked = row;
        scrollTo(0, 180);
        return [String(getSelection()), row.getBoundingClientRect().top, scrollY]"""
    )
    send(stand.main.port, "/mixed", times=3)
    send(stand.main.port, "/later", times=2)
    for _ in range(3):
        stand.refresh()
    browser.until("the new ones are listed", f"return {row('/later')}")
    text, top, scrolled, focus, connected, opened = browser.js(
        "return [String(getSelection()), marked.getBoundingClientRect().top, scrollY, document.activeElement === marked.querySelector('button'), marked.isConnected, !!document.querySelector('#routes-table .more')]"
    )
    assert text == marked[0] and text, (text, marked[0])
    assert abs(top - marked[1]) < 2 and scrolled == marked[2], (top, scrolled, marked)
    assert (focus, connected, opened) == (True, True, True), (focus, connected, opened)
    browser.js("getSelection().removeAllRanges(); document.getElementById('search').value = '/later'; document.getElementById('search').dispatchEvent(new Event('input'))")
    browser.until("the search finds it", "const rows = [...document.querySelectorAll('#list tr')]; return rows.length === 2 && rows.every(row => /later/.test(row.innerText))")
    browser.js("clearTimeout(filter.timer); document.getElementById('search').value = ''; filter()")
    browser.until("all are asked for again", "return !running && document.querySelectorAll('#list tr').length > 20")
    browser.js("document.getElementById('pause').click()")
    browser.until("what was on its way is here", "return !running")
    paused = browser.js("return turns")
    send(stand.main.port, "/unseen")
    time.sleep(1)
    assert browser.js(f"return turns === arguments[0] && !{row('/unseen')}", paused), "it goes on while it is paused"
    browser.js("document.getElementById('pause').click()")
    browser.until("it goes on after the pause", f"return {row('/unseen')}")


def check_keyboard(stand):
    """Everything is reached with the Tab key, in order and without a trap; Enter and arrows select requests."""
    browser = stand.browser
    browser.js("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex'); scrollTo(0, 0)")
    browser.press(Keys.TAB)
    assert browser.js("return document.activeElement.className") == "skip", "the first Tab reaches the link that skips"
    seen = []
    name = "const node = document.activeElement; return node === document.body ? '' : node.id || node.getAttribute('aria-label') || node.textContent.slice(0, 40)"
    for _ in range(250):
        browser.press(Keys.TAB)
        if not (here := browser.js(name)):
            break
        seen.append(here)
    wanted = ["pause", "routes-filter", "All", "route", "search", "live", "detail", "question-request", "question-body", "question-respond", "Explain"]
    places = [seen.index(one) if one in seen else -1 for one in wanted]
    assert -1 not in places and places == sorted(places), dict(zip(wanted, places, strict=True))
    assert any(one.startswith("Drain ") for one in seen), seen
    browser.js("document.querySelector('#list button').focus()")
    browser.press(Keys.ARROW_DOWN)
    browser.press(Keys.ENTER)
    browser.until("the second row is selected", "return document.querySelectorAll('#list tr')[1].getAttribute('aria-current') === 'true' || document.activeElement.closest('tr').getAttribute('aria-current') === 'true'")
    assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus can't be seen"


def check_axe(stand):
    """axe finds nothing: light and dark, wide and narrow, logged out and with 500 routes."""
    browser, found = stand.browser, []
    for dark in (False, True):
        for width in (1280, 375):
            browser.look(width, 900, dark)
            # Timelines are drawn anew for another width.
            time.sleep(0.4)
            found += [f"{width} {'dark' if dark else 'light'}: {one}" for one in browser.findings()]
            over = browser.js("return document.documentElement.scrollWidth - innerWidth")
            wide = "return [...document.querySelectorAll('main *')].filter(node => node.getBoundingClientRect().right > innerWidth && !node.closest('.scroll')).slice(0, 3).map(node => node.outerHTML.slice(0, 150))"
            assert over <= 0, f"at {width} px the page is {over} px too wide: {browser.js(wide)}"
            stand.shot(f"{'dark' if dark else 'light'}-{width}", whole=True)
    browser.look()
    assert not found, "\n".join(found)


def check_logged_out(stand):
    """One 401 while logged out, whatever time passes; another for a wrong token; none with the right one."""
    browser, refused = stand.browser, "return performance.getEntriesByType('resource').filter(one => one.responseStatus === 401).length"
    browser.go(stand.locked.admin)
    browser.until("it asks for a token", "return !document.getElementById('login').hidden")
    time.sleep(3)
    assert browser.js(refused) == 1, browser.js(refused)
    assert not (found := browser.findings()), found
    stand.shot("login")
    login = "document.getElementById('token').value = arguments[0]; document.querySelector('#login button').click()"
    browser.js(login, "no-token-that-is-known")
    browser.until("it says that the token is wrong", "return !document.getElementById('login').hidden && /not the right one/.test(document.getElementById('notice').innerText)")
    assert browser.js(refused) == 2, browser.js(refused)
    browser.js(login, TOKEN)
    browser.until("it shows what there is", "return document.getElementById('login').hidden && document.querySelectorAll('#routes-table tbody tr').length === 4")
    assert browser.js(refused) == 2, browser.js(refused)


def check_500_routes(stand):
    """500 routes are folded, filtered, and drawn in under 200 ms."""
    browser = stand.browser
    threads = [threading.Thread(target=send, args=(stand.wide.port, f"/service-{n}/v1/x")) for n in range(0, 500, 25)]
    for thread in threads:
        thread.start()
    browser.go(stand.wide.admin)
    browser.until("they are folded", "return document.querySelectorAll('#routes-table tbody tr').length === 8 && state.routes.length === 500")
    height = browser.js("return document.getElementById('requests').offsetTop")
    assert height < 1200, f"the requests begin {height} px down"
    took = browser.js(
        """const body = document.getElementById('routes-table').tBodies[0], took = [];
        document.getElementById('routes-all').setAttribute('aria-expanded', 'true');
        // Each with pictures.
        for (const route of state.routes) past.routes.set(route.name, { requests: Array.from({ length: 180 }, (_, n) => n % 17), failures: Array.from({ length: 180 }, (_, n) => n % 5) });
        for (let turn = 0; turn < 3; turn++) {
          body.replaceChildren(); body.kept = null;
          const begun = performance.now();
          drawRoutes(); void document.body.offsetHeight;
          took.push(performance.now() - begun);
        }
        return took"""
    )
    assert browser.js("return document.querySelectorAll('#routes-table tbody tr').length") == 500
    again = browser.js("const begun = performance.now(); drawRoutes(); void document.body.offsetHeight; return performance.now() - begun")
    stand.shot("500-routes")
    browser.js("const filter = document.getElementById('routes-filter'); filter.value = 'service-49'; filter.dispatchEvent(new Event('input'))")
    assert browser.js("return document.querySelectorAll('#routes-table tbody tr').length") == 11
    assert not (found := browser.findings()), found
    assert min(took) < 200, took
    return f"{min(took):.0f} ms, and {again:.0f} ms for the next time"


def check_flood(stand):
    """Thousands of events a second take no memory that grows, in the page or in the process."""
    browser, proxy = stand.browser, stand.main
    browser.go(proxy.admin)
    browser.js("tap.wanted = true")
    browser.until("it listens", "tap.decide(); return tap.stream")
    over = threading.Event()

    def flood():
        connection, begun, sent = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30), time.monotonic(), 0
        while not over.is_set():
            connection.request("GET", "/flood")
            connection.getresponse().read()
            sent += EVENTS
            if (early := sent / RATE - (time.monotonic() - begun)) > 0:
                time.sleep(early)
        connection.close()

    client = threading.Thread(target=flood)
    client.start()
    try:
        # What is bounded is full by then.
        time.sleep(10 if stand.options.long else 1)
        begun, heard = time.monotonic(), browser.js("return tap.events + tap.missed")
        heap, resident = browser.heap(), rss(proxy)
        end = begun + (LONG if stand.options.long else SHORT)
        time.sleep(end - time.monotonic())
        after, kept = browser.heap(), rss(proxy)
        rate = (browser.js("return tap.events + tap.missed") - heard) / (time.monotonic() - begun)
    finally:
        over.set()
        client.join()
    browser.until("the page still answers", "return document.querySelectorAll('#list tr').length > 0")
    told = f"{rate:.0f} events a second, heap {heap >> 10} → {after >> 10} KiB, resident {resident:.1f} → {kept:.1f} MiB, missed {browser.js('return tap.missed')}"
    assert rate > RATE * (0.9 if stand.options.long else 0.5), told
    assert after - heap < HEAP << 20 and kept - resident < RESIDENT, told
    return told


def rss(proxy):
    """The process's resident memory, in MiB."""
    status = pathlib.Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) / 1024


CHECKS = {
    "live": check_live,
    "replay": check_replay,
    "what-if": check_what_if,
    "failures": check_failures,
    "kept": check_kept,
    "keyboard": check_keyboard,
    "axe": check_axe,
    "flood": check_flood,
    "500-routes": check_500_routes,
    "logged-out": check_logged_out,
}


def run(options, directory, axe):
    """Runs the checks, and prints what came of each."""
    wanted = options.only.split(",") if options.only else list(CHECKS)
    if unknown := [name for name in wanted if name not in CHECKS]:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
        return 2
    stand, wrong = Stand(options, directory, axe), 0
    try:
        for name in wanted:
            begun = time.monotonic()
            try:
                told = CHECKS[name](stand)
            except Exception as error:
                wrong += 1
                print(f"WRONG {name}: {str(error).split('(Session info')[0].strip()}", flush=True)
                stand.shot(f"wrong-{name}")
                continue
            print(f"ok    {name} ({time.monotonic() - begun:.1f} s){': ' + told if told else ''}", flush=True)
        noise = [entry["message"] for entry in stand.browser.driver.get_log("browser") if "TypeError" in entry["message"] or "Uncaught" in entry["message"]]
        if noise:
            wrong += 1
            print("WRONG errors in the page: " + "\n".join(noise))
    finally:
        stand.close()
    return int(wrong > 0)
