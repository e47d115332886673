#!/usr/bin/env python3
"""Prints the functions that a start and usual requests run, for the linker to put side by side.

    benches/functions.py [BINARY] > LIST

A process pays for the pages of its program that it touches, and the system maps sixteen around each. What runs is a
fifth of the program and would lie all over it; side by side it is a fifth of the memory. First come the functions of a
start and plain requests, then what policies, audits, reloads and the operators' pages add. `docker/build` runs this on
a first build, and links the second by the list (`MWL_LINK_ORDER`, see `build.rs`): the names end in hashes, so a list is
one of the very program.

Needs valgrind, and a binary with symbols: by default target/release/mwl-proxy.
"""

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from contenders import entry
from instructions import POLICY, port_of

HERE = os.path.dirname(os.path.abspath(__file__))
AUDIT = {
    "provider": "mwl:provider.middleware/mwl/finally/v1",
    "onAlways": {
        "with": {
            "call": {
                "provider": "mwl:provider.call/mwl-proxy/http/v1",
                "input": "{{ {'execution': execution.id, 'type': middleware.result.type} }}",
                "with": {"upstream": "origin", "method": "POST", "path": "/audit"},
            }
        }
    },
}
WAITING = {
    **entry("retry", policies=[{"match": {"codes": ["Provider.Call.Http.Unavailable"]}, "attempts": 3}]),
    "onFailure": {"with": {"delay": "{{ has(middleware.result.details.retryAfter) ? 'PT0S' : null }}"}},
}


class Origin(http.server.BaseHTTPRequestHandler):
    """A 503 for every other request of a path that ends in `flaky`, else as many bytes as the path says."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        Origin.asked += 1
        flaky = self.path.endswith("flaky") and Origin.asked % 2
        digits = re.search(r"\d+$", self.path)
        body = b"x" * (int(digits[0]) if digits else 1024)
        self.send_response(503 if flaky else 200)
        if flaky:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ask(port, path, method="GET", body=b""):
    """One request; its answer is read to its end."""
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as stream:
        stream.sendall(request.encode() + body)
        while stream.recv(65536):
            pass


def plain(port, _):
    for _ in range(20):
        ask(port, "/plain/1024")
    ask(port, "/plain/200000")
    ask(port, "/plain/10", "POST", b"y" * 100_000)
    time.sleep(2)  # What an idle proxy does, once.


def everything(port, admin):
    plain(port, admin)
    for path in ["/policy/flaky"] * 6 + ["/waiting/flaky"] * 6 + ["/audit/10"] * 4 + ["/gone", "/nowhere"]:
        ask(port, path)
    ask(port, "/policy/flaky", "POST", b"y" * 1000)
    for path in ("/metrics", "/readyz", "/routes", "/config", "/executions"):
        ask(admin, path)
    ask(admin, "/reload", "POST")


def executed(binary, drive, origin):
    """The symbols that run from the start of the program to its end."""
    admin = free_port()
    policy = [entry("timeout", duration="PT5S"), POLICY[1], entry("timeout", duration="PT1S")]
    stacks = {"plain": [], "policy": policy, "waiting": [policy[0], WAITING], "audit": [AUDIT, *policy]}
    if drive is plain:
        stacks = {"plain": []}
    config = {
        "listeners": [{"address": "127.0.0.1:0"}],
        "admin": {"address": f"127.0.0.1:{admin}"},
        "limits": {"workers": 1},
        "upstreams": {
            "origin": {"endpoints": [f"http://127.0.0.1:{origin}"]},
            "gone": {"endpoints": [f"http://127.0.0.1:{free_port()}"]},
        },
        "routes": [
            {"name": name, "match": {"pathPrefix": f"/{name}"}, "upstream": "origin", "middleware": stack}
            for name, stack in stacks.items()
        ]
        + [{"name": "gone", "match": {"pathPrefix": "/gone"}, "upstream": "gone"}],
    }
    with tempfile.TemporaryDirectory() as run:
        path, out = os.path.join(run, "bench.json"), os.path.join(run, "callgrind")
        with open(path, "w") as file:
            json.dump(config, file)
        valgrind = ["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={out}"]
        command = [*valgrind, binary, "run", "-c", path]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            drive(port_of(process), admin)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        with open(out) as file:
            return symbols(file, os.path.basename(binary))


def symbols(profile, binary):
    """Of callgrind's output: the functions of `binary` that ran."""
    names, found, here = {}, set(), False
    for line in profile:
        said = re.match(r"(c?ob|c?fn)=\((\d+)\)(?: (.*))?$", line.rstrip())
        if not said:
            continue
        key, number, name = said.groups()
        name = names.setdefault((key[-2:], number), name)
        if key == "ob":
            here = os.path.basename(name or "") == binary
        elif key == "fn" and here:
            # Recursion is counted apart.
            found.add(re.sub(r"'\d+$", "", name))
    return {name for name in found if re.match(r"[A-Za-z_][\w.$]*$", name)}


def main():
    default = os.path.join(HERE, "..", "target", "release", "mwl-proxy")
    binary = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else default)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = server.server_address[1]
    first = executed(binary, plain, origin)
    more = executed(binary, everything, origin) - first
    if len(first) < 100:
        raise RuntimeError(f"{binary} shows only {len(first)} functions: it has no symbols")
    print("\n".join([*sorted(first), *sorted(more)]))
    print(f"{len(first)} functions of a start and plain requests, {len(more)} more", file=sys.stderr)


if __name__ == "__main__":
    main()
