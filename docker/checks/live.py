"""A proxy under load, scraped by a real Prometheus: every query of the dashboard and the alerts finds data."""

import atexit
import http.client
import http.server
import json
import pathlib
import random
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from check import HERE, Failed, documents, tool
from image import free_port

TOKEN = "live-token-of-these-checks"
# How long the proxy is under load before the queries run. The queries' windows cover this time.
BUSY = 40

CONFIG = """
listeners:
  - {{ address: "127.0.0.1:{listen}" }}
  - {{ address: "127.0.0.1:0", tls: {{ certificate: proxy.pem, key: proxy.key }} }}
admin: {{ address: "127.0.0.1:{admin}" }}
upstreams:
  billing: {{ endpoints: ["http://127.0.0.1:{upstream}"], keepAlive: PT0.5S }}
  audit: {{ endpoints: ["http://127.0.0.1:{upstream}"] }}
  # Nobody listens on the port of the second.
  pair:
    endpoints: ["http://127.0.0.1:{upstream}", "http://127.0.0.1:1"]
    ejection: {{ consecutiveFailures: 2, baseTime: PT2S, maxTime: PT2S }}
  # One request at once, whose failures leave nothing for retries.
  narrow:
    endpoints: ["http://127.0.0.1:{upstream}"]
    maxRequests: 1
    maxWait: PT5S
    retryBudget: {{ share: 0, minPerSecond: 0 }}
  # Its endpoint is drained, and no route uses it.
  spare: {{ endpoints: ["http://127.0.0.1:{upstream}"] }}
# Nobody listens there.
stores: {{ fleet: {{ redis: "redis://127.0.0.1:1", onError: allow }} }}
routes:
  - name: protected
    match: {{ path: /protected }}
    upstream: narrow
    middleware:
      - provider: mwl:provider.middleware/mwl-proxy/rate-limit/v1
        onEntry: {{ with: {{ rate: 1000, store: fleet }} }}
      - provider: mwl:provider.middleware/mwl-proxy/rate-limit/v1
        onEntry: {{ with: {{ rate: 1 }} }}
      - provider: mwl:provider.middleware/mwl-proxy/idempotency/v1
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: {{ codes: ["Provider.Call.Http.Unavailable"] }}
                attempts: 5
                backoff: {{ initial: PT0.001S }}
      - provider: mwl:provider.middleware/mwl-proxy/circuit-breaker/v1
        onEntry: {{ with: {{ consecutive: 20 }} }}
  - name: hidden
    match: {{ path: /hidden }}
    upstream: billing
    catch: [{{ match: {{ codes: ["*"] }}, next: later }}]
    steps: {{ later: {{ action: Return, value: {{ status: 200 }} }} }}
  # A slip of its author.
  - name: slip
    match: {{ path: /slip }}
    upstream: billing
    output: "{{{{ step.result.value.headers['x-nothing'] }}}}"
  - name: pair
    match: {{ path: /pair }}
    upstream: pair
  - name: cut
    match: {{ path: /cut }}
    upstream: billing
  - name: pay
    upstream: billing
    buffer: {{ replay: 1KiB }}
    middleware:
      - provider: mwl:provider.middleware/mwl/finally/v1
        onAlways:
          with:
            call:
              provider: mwl:provider.call/mwl-proxy/http/v1
              input: "{{{{ middleware.result }}}}"
              with: {{ upstream: audit, method: POST, path: /audit }}
      - provider: mwl:provider.middleware/mwl/retry/v1
        onEntry:
          with:
            policies:
              - match: {{ codes: ["*"] }}
                attempts: 3
                backoff: {{ initial: PT0.01S }}
        onFailure:
          with:
            delay: "{{{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}}}"
      - provider: mwl:provider.middleware/mwl/timeout/v1
        onEntry: {{ with: {{ duration: PT0.2S }} }}
"""


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers, fails, sends Retry-After, breaks answers off, and answers too late; a few audits fail."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()

    def do_GET(self):
        turn = random.random()
        if self.path == "/audit":
            return self.answer(500 if turn < 0.05 else 204)
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"x")
            self.close_connection = True
            return None
        if turn < 0.1:
            time.sleep(0.4)
        if turn < 0.3:
            return self.answer(503)
        if turn < 0.35:
            return self.answer(429, ("Retry-After", "0"))
        return self.answer(200)

    def answer(self, status, *fields):
        try:
            self.send_response(status)
            for name, value in fields:
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_):
        pass


def checks_of(binary, queries):
    folder = tempfile.TemporaryDirectory()
    scene = Scene(binary, pathlib.Path(folder.name))

    def promtool_finds_nothing_to_say():
        done = subprocess.run(
            [tool("promtool"), "check", "metrics"], input=scene.exposition(), capture_output=True, text=True
        )
        if done.returncode != 0 or done.stdout.strip() or done.stderr.strip():
            raise Failed(f"exit {done.returncode}: {done.stdout}{done.stderr}")
        return f"{len(scene.exposition().splitlines())} lines of metrics"

    def every_query_finds_data():
        scene.until_scraped()
        empty = [query for query in queries if not scene.query(query)]
        if empty:
            raise Failed(f"{len(empty)} of {len(queries)} find nothing:\n" + "\n".join(empty))
        return f"{len(queries)} queries"

    def rules_are_evaluated():
        groups = scene.prometheus("rules", {})["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        bad = [rule["name"] for rule in rules if rule["health"] != "ok"]
        if bad:
            raise Failed(", ".join(bad))
        firing = sorted(rule["name"] for rule in rules if rule.get("state") in ("firing", "pending"))
        scene.end()
        folder.cleanup()
        return f"{len(rules)} rules; pending or firing on such an upstream: {', '.join(firing)}"

    return [promtool_finds_nothing_to_say, every_query_finds_data, rules_are_evaluated]


def certify(folder):
    """Makes a certificate for a month, and its key."""
    wanted = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=proxy.test"]
    files = ["-keyout", folder / "proxy.key", "-out", folder / "proxy.pem"]
    made = subprocess.run(["openssl", "req", *wanted, *files], capture_output=True, text=True)
    if made.returncode != 0:
        raise Failed(f"openssl: {made.stderr}")


class Scene:
    """The upstream, the proxy, its load, and Prometheus."""

    def __init__(self, binary, folder):
        self.listen, self.admin, upstream, self.port = (free_port() for _ in range(4))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", upstream), Upstream)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = {"listen": self.listen, "admin": self.admin, "upstream": upstream}
        certify(folder)
        config = folder / "proxy.yaml"
        config.write_text(CONFIG.format(**ports))
        self.proxy = subprocess.Popen([binary, "run", "-c", config], stderr=subprocess.DEVNULL)
        # The project's own file, with another target.
        [settings] = documents(HERE / "prometheus/prometheus.yml")
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings["rule_files"] = [str(HERE / "prometheus/rules.yml")]
        settings["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{self.admin}"]}]
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        self.scraper = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.end)
        self.until = time.monotonic() + BUSY
        self.clients = [threading.Thread(target=self.load, daemon=True) for _ in range(4)]
        time.sleep(1)
        for client in self.clients:
            client.start()
        self.until_first_scraped()
        self.drain(f"/upstreams/spare/endpoints/127.0.0.1:{upstream}/drain")
        # A refused file, then a valid one, so that both outcomes are counted.
        config.write_text("broken: true\n")
        time.sleep(2)
        config.write_text(CONFIG.format(**ports) + "# anew\n")
        time.sleep(5)

    def load(self):
        """Sends requests until the time is over: small ones, and some too large to be kept for another attempt."""
        connection = http.client.HTTPConnection("127.0.0.1", self.listen, timeout=10)
        while time.monotonic() < self.until + 10:
            size = 4096 if random.random() < 0.2 else 16
            try:
                path = random.choice(["/pay"] * 12 + ["/hidden", "/slip", "/cut", "/pair"] + ["/protected"] * 2)
                connection.request("POST", path, body=b"x" * size)
                connection.getresponse().read()
                # Now and then wait for longer than the upstream's connections are kept.
                time.sleep(0.7 if random.random() < 0.05 else 0.01)
            except (http.client.HTTPException, OSError):
                connection.close()

    def exposition(self):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5).read().decode()

    def drain(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}", method="POST")
        urllib.request.urlopen(request, timeout=5).read()

    def until_first_scraped(self):
        """Waits for Prometheus's first scrape of the proxy, which comes some seconds after the start."""
        while time.monotonic() < self.until:
            try:
                if self.query("mwl_config_info"):
                    return
            except OSError:
                pass  # It does not listen yet.
            time.sleep(0.2)
        raise Failed("Prometheus scrapes nothing")

    def until_scraped(self):
        """Waits until the windows contain enough samples."""
        time.sleep(max(0, self.until - time.monotonic()))

    def prometheus(self, page, query):
        address = f"http://127.0.0.1:{self.port}/api/v1/{page}?{urllib.parse.urlencode(query)}"
        answer = json.load(urllib.request.urlopen(address, timeout=10))
        if answer["status"] != "success":
            raise Failed(f"{query}: {answer}")
        return answer["data"]

    def query(self, query):
        """The samples that are numbers (0/0 is not one)."""
        found = self.prometheus("query", {"query": query})["result"]
        return [sample for sample in found if sample["value"][1] != "NaN"]

    def end(self):
        for process in (self.scraper, self.proxy):
            process.terminate()
        for process in (self.scraper, self.proxy):
            process.wait(10)
