"""Starts mwl-proxy from its binary, and reads what it tells: its log, its access log and its metrics."""

import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 30
PORTS = itertools.count(20000 + os.getpid() * 7 % 9000)


def binary():
    """The program to start: `MWL_PROXY_BIN`, or what was built last."""
    if named := os.environ.get("MWL_PROXY_BIN"):
        return os.path.abspath(named)
    built = [TOP / "target" / kind / "mwl-proxy" for kind in ("release", "debug")]
    built = [path for path in built if path.exists()]
    if not built:
        raise SystemExit("there is no program: run `cargo build --release` or set MWL_PROXY_BIN")
    return str(max(built, key=lambda path: path.stat().st_mtime))


def free_ports(number):
    """Ports that nobody listens on, each given once, outside of the range that the system takes for outgoing connections."""
    held, ports = [], []
    while len(ports) < number:
        port = next(PORTS)
        held.append(socket.socket())
        try:
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held[-1].bind(("127.0.0.1", port))
            ports.append(port)
        except OSError:
            continue
    for one in held:
        one.close()
    return ports


def wait_for_port(port, process, name):
    """Waits until somebody listens on a port."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"{name} ended with {process.returncode}") from None
            time.sleep(0.05)
    raise SystemExit(f"{name} does not listen on port {port} after {PATIENCE} s")


class Proxy:
    """A running proxy with its files in a directory: `proxy.json`, `log` and `access`."""

    def __init__(self, config, directory, access=None, env=None, before=(), more=()):
        self.directory = pathlib.Path(directory)
        self.port = int(config["listeners"][0]["address"].rsplit(":", 1)[1])
        self.admin = int(config["admin"]["address"].rsplit(":", 1)[1])
        self.access = self.directory / "access"
        self.write(config)
        command = [*before, binary(), "run", "-c", self.directory / "proxy.json", *more]
        with open(self.directory / "log", "wb") as log:
            out = access if access is not None else open(self.access, "wb")
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env={**os.environ, **(env or {})}
            )
        try:
            wait_for_port(self.admin, self.process, "mwl-proxy")
        except SystemExit as error:
            raise SystemExit(f"{error}\n{self.log()[-4000:]}") from None

    def write(self, config):
        """Writes the configuration in one step, so that nobody reads half of it."""
        draft = self.directory / "draft"
        draft.write_text(json.dumps(config, indent=1))
        draft.rename(self.directory / "proxy.json")

    def log(self):
        """Its log."""
        return (self.directory / "log").read_text(errors="replace")

    def ask(self, path, data=None):
        """A page of the admin address."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", data, PATIENCE) as answer:
            return answer.read().decode()

    def metrics(self):
        """The metrics: from (name, labels) to the value."""
        return dict(samples(self.ask("/metrics")))

    def stop(self):
        """Stops it, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE * 2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def samples(text):
    """The samples of a page of metrics: (name, labels) and value; labels are sorted pairs."""
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        found = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line)
        labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', found[2] or "")))
        yield (found[1], labels), float(found[3])


def total(metrics, name, **labels):
    """The sum of a family's samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for (family, has), value in metrics.items() if family == name and wanted <= set(has))
