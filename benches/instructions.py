#!/usr/bin/env python3
"""Compares the user-space instructions of a request with the figures in `instructions.json`.

    benches/instructions.py [BINARY] [--write | --prices]

Runs the built program under callgrind and sends it requests one after another over one connection. The cost of a
request is the difference between a short run and a longer one, so the start does not count, and the same binary
gives the same figure. A figure more than 5% above the kept one fails; so does one more than 5% below it: keep the
gain with `--write`. `--prices` says instead what each of the proxy's own middlewares adds to a plain request.
"""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

import contenders
import http2
from contenders import entry, own

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "instructions.json")
TOLERANCE = 0.05
SHORT, LONG = 300, 1500
ANSWER = b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
REQUEST = b"GET /1k HTTP/1.1\r\nHost: bench\r\n"


POLICY = [
    entry("timeout", duration="PT5S"),
    entry("retry", policies=[{"match": {"codes": ["Provider.Call.Http.Unavailable"]}, "attempts": 3}]),
    entry("timeout", duration="PT1S"),
]


class Case:
    """Requests of one kind: the route's stack, further keys of the file and its parts, and how a client asks."""

    def __init__(
        self,
        stack=(),
        more=None,
        listener=None,
        ask=None,
        connect=None,
        counts=(SHORT, LONG),
        origin=None,
        upstream=None,
        tls=False,
    ):
        self.stack, self.more, self.listener, self.upstream = list(stack), more or {}, listener or {}, upstream or {}
        self.ask, self.counts, self.tls = ask or ask_http1, counts, tls
        self.connect = connect or (connect_tls if tls else connect_clear)
        # Starts an origin that speaks HTTP/2. Without it, one for all speaks HTTP/1.1.
        self.origin = origin

    def write(self, origin, run):
        """The file of the proxy, in the folder `run`."""
        listener = {"address": "127.0.0.1:0", **self.listener}
        if self.tls:
            listener["tls"] = {"certificate": "cert.pem", "key": "key.pem"}
            contenders.certificate(run)
        upstream = {"protocol": "http2"} if self.origin else self.upstream
        upstreams = {"origin": {"endpoints": [f"http://127.0.0.1:{origin}"], **upstream}}
        keys = {"listeners": [listener], "limits": {"workers": 1}, **self.more}
        return contenders.mwl_config(os.path.join(run, "bench.json"), self.stack, upstreams, **keys)


def connect_clear(port):
    return socket.create_connection(("127.0.0.1", port), 120)


def connect_tls(port, protocols=()):
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    # The same cipher on every machine, whatever its library prefers.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connect_clear(port), server_hostname="localhost")


def ask_http1(stream, times, field=None):
    """Sends requests one after another. `field` makes a further field of a request from its number."""
    for number in range(times):
        more = field(number) if field else b""
        stream.sendall(REQUEST + more + b"\r\n")
        left = None
        answer = b""
        while left is None or left > 0:
            part = stream.recv(65536)
            if not part:
                raise RuntimeError("the proxy closed the connection")
            answer += part
            head = answer.find(b"\r\n\r\n")
            if head >= 0:
                left = head + 4 + 1024 - len(answer)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the proxy answered {answer[:60]!r}")


def ask_with_keys(stream, times):
    ask_http1(stream, times, lambda number: f"Idempotency-Key: {number}\r\n".encode())


# A request that costs more needs fewer of them for the same precision. Multiples of the largest batch.
FEWER = (96, 496)


def over_http2(batch, upstream=False):
    """So many requests at once over HTTP/2, which the upstream speaks, too, or not."""
    origin = (lambda: http2.serve_origin(batch)) if upstream else None
    ask = lambda client, times: client.ask(times, batch)
    return Case(connect=http2.Client, ask=ask, counts=FEWER, origin=origin)


CASES = {
    "plain": Case(),
    "policy": Case(POLICY),
    "log": Case(more={"log": {"access": {"when": "all"}}}, counts=FEWER),
    "tls": Case(tls=True, counts=FEWER),
    "h2c": over_http2(1),
    "h2h2": over_http2(1, upstream=True),
    "h2h2, 16 at once": over_http2(16, upstream=True),
}

PRICES = {
    "circuit-breaker": Case([own("circuit-breaker", consecutive=5)]),
    "circuit-breaker, share": Case([own("circuit-breaker", share=0.5)]),
    "concurrency-limit": Case([own("concurrency-limit", max=100)]),
    "concurrency-limit, adaptive": Case([own("concurrency-limit", adaptive={})]),
    "rate-limit": Case([own("rate-limit", rate=1_000_000_000)]),
    "rate-limit, by key": Case([own("rate-limit", rate=1_000_000_000, key="{{ step.input.headers['host'] }}")]),
    "idempotency, without a key": Case([own("idempotency")]),
    "idempotency, with a new key": Case([own("idempotency")], ask=ask_with_keys),
    "fault, which never happens": Case([own("fault", share=0, status=503)]),
    "retryBudget of the upstream": Case(upstream={"retryBudget": {}}),
}


def serve_origin():
    """Starts an origin in this process and returns its port."""

    def serve(stream):
        read = b""
        while part := stream.recv(65536):
            read += part
            while b"\r\n\r\n" in read:
                _, read = read.split(b"\r\n\r\n", 1)
                stream.sendall(ANSWER)

    return contenders.serve(serve)


def port_of(process):
    """The port that the system chose for the proxy, which logs it."""
    said = ""
    for line in process.stderr:
        said += line
        if found := re.search(r"Listening\b.*127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise RuntimeError("the proxy does not listen: " + said[-2000:])


def counted(binary, case, origin, requests):
    with tempfile.TemporaryDirectory() as run:
        path, log = case.write(origin, run), os.path.join(run, "callgrind")
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}"]
        command = [*valgrind, binary, "run", "-c", path]
        # The access log goes to standard output, the rest to standard error.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            with contextlib.closing(case.connect(port_of(process))) as stream:
                case.ask(stream, requests)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        with open(log) as file:
            found = re.search(r"Collected : (\d+)", file.read())
    if not found:
        raise RuntimeError("callgrind counted nothing")
    return int(found[1])


def each_request(binary, case, origin):
    short, long = case.counts
    origin = case.origin() if case.origin else origin
    runs = [counted(binary, case, origin, requests) for requests in case.counts]
    return round((runs[1] - runs[0]) / (long - short))


def prices(binary):
    origin = serve_origin()
    plain = each_request(binary, Case(), origin)
    for name, case in PRICES.items():
        print(f"{name}: {each_request(binary, case, origin) - plain} instructions a request", flush=True)
    return 0


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    binary = os.path.abspath(arguments[0] if arguments else os.path.join(HERE, "..", "target", "release", "mwl-proxy"))
    if "--prices" in sys.argv:
        return prices(binary)
    with open(KEPT) as file:
        kept = json.load(file)
    origin = serve_origin()
    measured, wrong = {}, 0
    for name, case in CASES.items():
        measured[name] = each_request(binary, case, origin)
        change = measured[name] / kept[name] - 1 if name in kept else 1
        verdict = "as kept" if abs(change) <= TOLERANCE else "MORE THAN KEPT" if change > 0 else "less than kept"
        wrong += abs(change) > TOLERANCE
        kept_figure = kept.get(name, "nothing")
        print(f"{name}: {measured[name]} instructions a request, {change:+.1%} against {kept_figure}: {verdict}", flush=True)
    if "--write" in sys.argv:
        with open(KEPT, "w") as file:
            json.dump(measured, file, indent=2)
            file.write("\n")
    elif wrong:
        print("find out why; where it is meant, keep the figures with benches/instructions.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
