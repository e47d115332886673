#!/usr/bin/env python3
"""Sends usual traffic through a program that counts what runs, so that the compiler knows it for the next build.

    benches/train.py BINARY [REQUESTS]

The program is one that was built with `-C profile-generate`; it writes its counts when it ends. `docker/build` then builds it
again with them (`-C profile-use`): what runs often is inlined and stands together, what never runs is out of the way. Every wire
gets about as many requests, by default 10000, so that none is fast at the cost of another. What is not here is built as without.
"""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

import contenders
import http2
from functions import AUDIT
from instructions import CASES, POLICY, PRICES, Case, connect_clear, connect_tls, port_of

CONNECTIONS = 8
KIB = 1024


def serve_origin():
    """Starts an origin in this process and returns its port: a path's digits say how long the answer is, and of those that end
    in `flaky` one in ten is a 503 that may be asked again at once."""
    asked = itertools.count()

    def serve(stream):
        read = b""
        while part := stream.recv(1 << 18):
            read += part
            while b"\r\n\r\n" in read:
                head, _, read = read.partition(b"\r\n\r\n")
                length = content_length(head)
                while len(read) < length:
                    read += stream.recv(1 << 18)
                read = read[length:]
                stream.sendall(answer_to(head.split(b" ", 2)[1], next(asked)))

    return contenders.serve(serve)


def answer_to(path, number):
    if path.endswith(b"flaky") and number % 10 == 0:
        return b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
    digits = re.search(rb"/(\d+)$", path)
    length = int(digits[1]) if digits else KIB
    fields = f"Server: origin\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + b"x" * length


def content_length(head):
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


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
    head, _, body = read.partition(b"\r\n\r\n")
    left = content_length(head) - len(body)
    while left > 0:
        left -= len(stream.recv(1 << 18))


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


def over_http2_and_tls(batch):
    connect = lambda port: http2.Client(port, lambda port: connect_tls(port, ["h2"]))
    return Case(tls=True, connect=connect, ask=lambda client, times: client.ask(times, batch))


def cases(origin, second, times):
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
    yield over_http2_and_tls(1), times
    yield over_http2_and_tls(16), times


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


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    binary = os.path.abspath(sys.argv[1])
    requests = int(sys.argv[2]) if len(sys.argv) == 3 else 10_000
    origin, second = serve_origin(), serve_origin()
    done = 0
    for case, times in cases(origin, second, requests):
        run(binary, case, times, origin)
        done += times
    print(f"{done} requests", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
