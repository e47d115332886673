#!/usr/bin/env python3
"""Compares the user-space instructions of a request with the figures in `instructions.json`.

    benches/instructions.py [BINARY] [--write | --prices]

Runs the built program under callgrind and sends it requests one after another over one connection. The cost of a
request is the difference between a short run and a longer one, so the start does not count, and the same binary
gives the same figure. A figure more than 5% above the kept one fails; so does one more than 5% below it: keep the
gain with `--write`. `--prices` says instead what each of the proxy's own middlewares adds to a plain request.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import http2

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "instructions.json")
TOLERANCE = 0.05
# Multiples of the largest batch.
SHORT, LONG = 304, 1504
ANSWER = b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
REQUEST = b"GET /1k HTTP/1.1\r\nHost: bench\r\n\r\n"


def entry(name, **arguments):
    return {"provider": f"mwl:provider.middleware/mwl/{name}/v1", "onEntry": {"with": arguments}}


POLICY = [
    entry("timeout", duration="PT5S"),
    entry("retry", policies=[{"match": {"codes": ["Provider.Call.Http.Unavailable"]}, "attempts": 3}]),
    entry("timeout", duration="PT1S"),
]
CASES = {"plain": [], "policy": POLICY}
# Over HTTP/2: how many requests at once, and whether the upstream speaks it, too.
HTTP2 = {"h2c": (1, False), "h2h2": (1, True), "h2h2, 16 at once": (16, True)}


def own(name, **arguments):
    return {"provider": f"mwl:provider.middleware/mwl-proxy/{name}/v1", "onEntry": {"with": arguments}}


PRICES = {
    "circuit-breaker": [own("circuit-breaker", consecutive=5)],
    "circuit-breaker, share": [own("circuit-breaker", share=0.5)],
    "concurrency-limit": [own("concurrency-limit", max=100)],
    "concurrency-limit, adaptive": [own("concurrency-limit", adaptive={})],
}


def serve_origin():
    """Starts an origin in this process and returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(stream):
        read = b""
        while part := stream.recv(65536):
            read += part
            while b"\r\n\r\n" in read:
                _, read = read.split(b"\r\n\r\n", 1)
                stream.sendall(ANSWER)

    def accept():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def ask(stream, times):
    for _ in range(times):
        stream.sendall(REQUEST)
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


def port_of(process):
    """The port that the system chose for the proxy, which logs it."""
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"Listening\b.*127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise RuntimeError("the proxy does not listen: " + said[-2000:])


def ask_http1(port, times):
    with socket.create_connection(("127.0.0.1", port), 120) as stream:
        ask(stream, times)


def counted(binary, stack, origin, requests, ask=ask_http1, upstream=None):
    """How many instructions the proxy takes for `requests`, which `ask` sends to its port."""
    config = {
        "listeners": [{"address": "127.0.0.1:0"}],
        "limits": {"workers": 1},
        "upstreams": {"origin": {"endpoints": [f"http://127.0.0.1:{origin}"], **(upstream or {})}},
        "routes": [{"name": "all", "match": {"pathPrefix": "/"}, "upstream": "origin", "middleware": stack}],
    }
    with tempfile.TemporaryDirectory() as run:
        path, log = os.path.join(run, "bench.json"), os.path.join(run, "callgrind")
        with open(path, "w") as file:
            json.dump(config, file)
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}"]
        command = [*valgrind, binary, "run", "-c", path]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            ask(port_of(process), requests)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        with open(log) as file:
            found = re.search(r"Collected : (\d+)", file.read())
    if not found:
        raise RuntimeError("callgrind counted nothing")
    return int(found[1])


def each_request(binary, stack, origin, **wire):
    runs = [counted(binary, stack, origin, requests, **wire) for requests in (SHORT, LONG)]
    return round((runs[1] - runs[0]) / (LONG - SHORT))


def each_http2_request(binary, batch, upstream, origin):
    """The same over HTTP/2."""
    ask = lambda port, times: http2.Client(port).ask(times, batch)
    if not upstream:
        return each_request(binary, [], origin, ask=ask)
    return each_request(binary, [], http2.serve_origin(batch), ask=ask, upstream={"protocol": "http2"})


def prices(binary):
    origin = serve_origin()
    plain = each_request(binary, [], origin)
    for name, stack in PRICES.items():
        print(f"{name}: {each_request(binary, stack, origin) - plain} instructions a request", flush=True)
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
    cases = {name: lambda stack=stack: each_request(binary, stack, origin) for name, stack in CASES.items()}
    cases |= {name: lambda how=how: each_http2_request(binary, *how, origin) for name, how in HTTP2.items()}
    for name, count in cases.items():
        measured[name] = count()
        change = measured[name] / kept[name] - 1
        verdict = "as kept" if abs(change) <= TOLERANCE else "MORE THAN KEPT" if change > 0 else "less than kept"
        wrong += abs(change) > TOLERANCE
        print(f"{name}: {measured[name]} instructions a request, {change:+.1%} against {kept[name]}: {verdict}", flush=True)
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
