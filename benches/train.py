#!/usr/bin/env python3
"""Sends usual traffic through a program that counts what runs, so that the compiler knows it for the next build.

    benches/train.py BINARY [REQUESTS]

The program is one that was built with `-C profile-generate`; it writes its counts when it ends. `docker/build` then builds it
again with them (`-C profile-use`): what runs often is inlined and stands together, what never runs is out of the way. Every wire
gets about as many requests, by default 10000, so that none is fast at the cost of another. What is not here is taken to be rare, and is
made small instead of fast: whatever a busy service may do with each request belongs here.
"""

import contextlib
import itertools
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading

import contenders
import http2
from contenders import entry
from functions import AUDIT
from instructions import CASES, POLICY, PRICES, Case, connect_clear, connect_tls, port_of

CONNECTIONS = 8
KIB = 1024


HTTP_CALL = "mwl:provider.call/mwl-proxy/http/v1"
# The two calls of a Gather, whose answers an expression puts together.
FAN = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "both",
    "steps": {
        "both": {
            "action": "Gather",
            "calls": [
                {"provider": HTTP_CALL, "with": {"upstream": "origin", "path": "/json"}},
                {"provider": HTTP_CALL, "with": {"upstream": "origin", "path": "/json"}},
            ],
            "completion": {"successes": 1, "wait": True},
            "output": {"first": "{{ step.results[0].value.body.a }}", "all": "{{ step.results.size() }}"},
            "next": "done",
        },
        "done": {"action": "Return"},
    },
}
# A Step whose failures another one takes, by what the request says.
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "sort",
    "steps": {
        "sort": {
            "action": "Match",
            "cases": [{"when": "{{ match.input.method == 'GET' && 'x-tier' in match.input.headers }}", "next": "ask"}],
            "default": {"next": "other"},
        },
        "ask": {
            "action": "Call",
            "call": {"provider": HTTP_CALL, "with": {"upstream": "origin"}},
            "catch": [{"match": {"codes": ["Provider.Call.Http.*"]}, "next": "other"}],
            "next": "done",
        },
        "other": {"action": "Call", "call": {"provider": HTTP_CALL, "with": {"upstream": "origin", "path": "/json"}}, "next": "done"},
        "done": {"action": "Return"},
    },
}
CHOSEN = entry("retry", policies=[{"match": {"codes": ["Provider.Call.*"]}, "attempts": 2}])
CHOSEN["onEntry"]["when"] = "{{ step.input.body.a == 1 && step.input.headers['x-tier'] == 'gold' }}"


def serve_origin(secret=None):
    """Starts an origin in this process and returns its port: a path's digits say how long the answer is, and of those that end
    in `flaky` one in ten is a 503 that may be asked again at once. `secret` is the context of TLS."""
    asked = itertools.count()

    def serve(stream):
        with secret.wrap_socket(stream, server_side=True) if secret else stream as stream:
            read = b""
            while part := stream.recv(1 << 18):
                read += part
                while b"\r\n\r\n" in read:
                    head, _, read = read.partition(b"\r\n\r\n")
                    read = body_of(head, read, stream)[1]
                    stream.sendall(answer_to(head.split(b" ", 2)[1], next(asked)))

    return contenders.serve(serve)


def answer_to(path, number):
    if path.endswith(b"flaky") and number % 10 == 0:
        return b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    if path.startswith(b"/tunnel"):
        return b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    if path.startswith(b"/chunked"):
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n%b\r\n" % (b"x" * KIB) * 3 + b"0\r\n\r\n"
    if path.startswith(b"/json"):
        body = b'{"a": 1, "items": [1, 2, 3]}'
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    digits = re.search(rb"/(\d+)$", path)
    length = int(digits[1]) if digits else KIB
    fields = f"Server: origin\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + b"x" * length


def body_of(head, read, stream):
    """The body of the message with this head, of which the beginning was `read`, and what was read behind it."""
    chunked = re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE)
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    length = int(found[1]) if found else 0
    while len(read) < length or chunked and not read.endswith(b"0\r\n\r\n"):
        part = stream.recv(1 << 18)
        if not part:
            raise RuntimeError("the connection was closed within a body")
        read += part
    return (read, b"") if chunked else (read[:length], read[length:])


def request(path, method="GET", body=b"", more=""):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\n{length}{more}\r\n".encode() + body


def read_answer(stream):
    read = b""
    while b"\r\n\r\n" not in read:
        part = stream.recv(1 << 18)
        if not part:
            raise RuntimeError(f"the proxy closed the connection after {read[:60]!r}")
        read += part
    head, _, rest = read.partition(b"\r\n\r\n")
    body_of(head, rest, stream)


def side_by_side(*requests):
    """Asks over several connections, which take turns."""

    def ask(first, times):
        port = first.getpeername()[1]
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(connect_clear(port)) for _ in range(CONNECTIONS - 1)]
            streams = [first, *others]
            for turn in range(times // CONNECTIONS):
                for place, stream in enumerate(streams):
                    stream.sendall(requests[(turn + place) % len(requests)])
                for stream in streams:
                    read_answer(stream)

    return ask


def anew(connect):
    """Asks over a new connection each time."""

    def ask(first, times):
        port = first.getpeername()[1]
        for _ in range(times):
            with contextlib.closing(connect(port)) as stream:
                stream.sendall(request("/1024", more="Connection: close\r\n"))
                while stream.recv(1 << 16):
                    pass

    return ask


def tunnel(first, times):
    """Asks for another protocol, and sends a few bytes in it."""
    port = first.getpeername()[1]
    for _ in range(times // 10):
        with contextlib.closing(connect_clear(port)) as stream:
            stream.sendall(request("/tunnel", more="Connection: upgrade\r\nUpgrade: websocket\r\n"))
            read_answer(stream)
            for _ in range(10):
                # The origin takes it for a request.
                stream.sendall(request("/10"))
                read_answer(stream)


def over_http2_and_tls(batch):
    connect = lambda port: http2.Client(port, lambda port: connect_tls(port, ["h2"]))
    return Case(tls=True, connect=connect, ask=lambda client, times: client.ask(times, batch))


def cases(origin, second, secret, certificate, times):
    """Each case, and how many requests it gets."""
    delay = "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
    waiting = [POLICY[0], {**POLICY[1], "onFailure": {"with": {"delay": delay}}}, POLICY[2]]
    two = {"endpoints": [f"http://127.0.0.1:{origin}", f"http://127.0.0.1:{second}"]}
    get, flaky = request("/1024"), request("/flaky")
    export = {"otlp": {"endpoint": f"http://127.0.0.1:{origin}"}, "sample": 1}
    middlewares = [entry for case in PRICES.values() for entry in case.stack]
    yield from ((case, times) for case in CASES.values())
    yield Case(middlewares), times
    yield Case(ask=side_by_side(get)), times
    yield Case(POLICY, ask=side_by_side(get), upstream=two), times
    yield Case(waiting, ask=side_by_side(flaky), upstream=two), times
    yield Case(ask=side_by_side(request("/65536"), request("/1048576"))), times // 4
    yield Case(ask=side_by_side(request("/10", "POST", b"y" * 16 * KIB))), times // 4
    yield Case(POLICY, ask=side_by_side(request("/10", "POST", b'{"a": 1}'))), times // 4
    yield Case([AUDIT, *POLICY]), times // 4
    yield Case(more={"tracing": export}), times
    yield Case(ask=anew(connect_clear)), times
    yield Case(tls=True, ask=anew(connect_tls)), times // 8
    yield from rarer(origin, secret, certificate, times // 4)
    yield over_http2_and_tls(1), times
    yield over_http2_and_tls(16), times


def rarer(origin, secret, certificate, times):
    """What only some services do, but do with each request."""
    tier, json = "X-Tier: gold\r\n", "X-Tier: gold\r\nContent-Type: application/json\r\n"
    sent, read = request("/json", "POST", b'{"a": 1, "b": [1, 2]}', json), request("/json", more=tier)
    chunks = b"POST /chunked HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n400\r\n%b\r\n0\r\n\r\n" % (b"y" * KIB)
    rule = {"status": [402], "when": "{{ response.body.a == 2 }}", "code": "Provider.Call.Own", "retryable": False}
    judged = {"name": "judged", "match": {"pathPrefix": "/json"}, "upstream": "origin", "classify": [rule], "middleware": POLICY}
    routes = lambda *routes: {"routes": list(routes)}
    flow = lambda flow: routes({"name": "flow", "match": {"pathPrefix": "/"}, "flow": flow})
    many = [
        {"name": f"r{number}", "match": {"pathPrefix": f"/r{number}", "headers": {"x-tier": "gold"}}, "upstream": "origin"}
        for number in range(50)
    ]
    tls = {"endpoints": [f"https://localhost:{secret}"], "tls": {"ca": certificate}}
    hashed = {"endpoints": [f"http://127.0.0.1:{origin}", f"http://localhost:{origin}"]}
    yield Case(POLICY, ask=side_by_side(request("/1024")), upstream=tls), times
    yield Case(POLICY, ask=side_by_side(chunks, request("/chunked"))), times
    yield Case([CHOSEN], ask=side_by_side(sent)), times
    yield Case(more=routes(judged), ask=side_by_side(read)), times
    yield Case(more=flow(FLOW), ask=side_by_side(request("/1024", more=tier), sent)), times
    yield Case(more=flow(FAN), ask=side_by_side(read)), times
    yield Case(more=routes(*many), ask=side_by_side(request("/r7/1024", more=tier), request("/other/1024"))), times
    yield Case(upstream={**hashed, "balance": {"hash": "{{ step.input.headers['x-tier'] }}"}}, ask=side_by_side(read)), times
    yield Case(upstream={**hashed, "balance": "roundRobin", "retryBudget": {}}, ask=side_by_side(read)), times
    yield Case(ask=tunnel), times
    upload = lambda client, times: client.ask(times, 4, b"z" * 4 * KIB)
    yield Case(connect=http2.Client, ask=upload), times
    yield Case(connect=http2.Client, ask=upload, origin=http2.serve_origin), times


def run(binary, case, times, origin):
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(case.origin() if case.origin else origin, folder)
        process = subprocess.Popen(
            [binary, "run", "-c", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        # A pipe that nobody reads would fill.
        try:
            port = port_of(process)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with contextlib.closing(case.connect(port)) as stream:
                case.ask(stream, times)
            process.send_signal(signal.SIGTERM)
            if process.wait(60) != 0:
                raise RuntimeError(f"{binary} ended with {process.returncode}")
        finally:
            process.kill()
            process.wait()


def own_certificate(folder):
    """A certificate for localhost that vouches for itself, and the context of a server that shows it."""
    certificate, key = os.path.join(folder, "own.pem"), os.path.join(folder, "own.key")
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    files = ["-keyout", key, "-out", certificate]
    subprocess.run(["openssl", "req", "-x509", *kind, *name, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    binary = os.path.abspath(sys.argv[1])
    requests = int(sys.argv[2]) if len(sys.argv) == 3 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        certificate, context = own_certificate(folder)
        origin, second, secret = serve_origin(), serve_origin(), serve_origin(context)
        done = 0
        for case, times in cases(origin, second, secret, certificate, requests):
            run(binary, case, times, origin)
            done += times
    print(f"{done} requests", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
