"""The servers behind the proxy and the fronts before it: how each is started, and what its log says."""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import program

HERE = pathlib.Path(__file__).resolve().parent / "servers"
# The packages (Debian's) that have them; `run --install` installs these. None of them starts a service.
PACKAGES = ["nginx-light", "apache2-bin", "golang-go", "gunicorn", "haproxy", "nodejs"]
NEEDS = {"nginx": "nginx", "nginx-h2": "nginx", "apache": "apache2", "node": "node", "go": "go", "gunicorn": "gunicorn"}
FRONTS = {"front-nginx": "nginx", "front-haproxy": "haproxy", "front-haproxy-h2": "haproxy"}


def found(name):
    """The path of a server's program, if it is installed."""
    return shutil.which(NEEDS.get(name) or FRONTS[name], path=os.environ["PATH"] + ":/usr/sbin")


class Server:
    """A running server. `lines` are what it saw."""

    def __init__(self, name, directory, proxy_port=None):
        self.name, self.run = name, pathlib.Path(directory)
        self.run.mkdir(parents=True, exist_ok=True)
        self.port, self.http2_port, self.inner = program.free_ports(3)
        self.protocol = "http2" if name == "nginx-h2" else "http1"
        self.values = {"RUN": self.run, "HERE": HERE, "PORT": self.port, "HTTP2": self.http2_port, "INNER": self.inner}
        self.values |= {"PROXY": proxy_port, "PROTOCOL": "proto h2" if name == "front-haproxy-h2" else ""}
        self.seen = self.run / "seen"
        self.seen.touch()
        command, more = self._command()
        with open(self.run / "out", "wb") as out:
            told = open(self.seen, "wb") if "haproxy" in name else out
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=told, stderr=out, env={**os.environ, **more}
            )
        if name == "nginx-h2":
            self.port = self.http2_port
        try:
            program.wait_for_port(self.port, self.process, name)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{(self.run / 'out').read_text()[-2000:]}") from None

    def _command(self):
        path = found(self.name)
        match self.name:
            case "nginx" | "nginx-h2":
                return [path, "-p", self.run, "-c", self._file("nginx.conf")], {}
            case "front-nginx":
                return [path, "-p", self.run, "-c", self._file("front-nginx.conf")], {}
            case "front-haproxy" | "front-haproxy-h2":
                return [path, "-db", "-f", self._file("front-haproxy.cfg")], {}
            case "apache":
                return [path, "-D", "FOREGROUND", "-f", self._file("apache.conf")], {}
            case "node":
                return [path, HERE / "server.js", self.port, self.seen], {}
            case "go":
                return [_build_go(path), self.port, self.seen], {}
            case "gunicorn":
                options = ["-k", "gthread", "--threads", "16", "--keep-alive", "60", "--worker-tmp-dir", self.run]
                return [path, *options, "-b", f"127.0.0.1:{self.port}", "--chdir", HERE, "app:app"], {
                    "SEEN": str(self.seen),
                    "PYTHONDONTWRITEBYTECODE": "1",
                }

    def _file(self, name):
        """A file of `servers/` with this run's ports and paths."""
        text = re.sub(r"@([A-Z0-9]+)@", lambda match: str(self.values[match[1]]), (HERE / name).read_text())
        (self.run / name).write_text(text)
        return self.run / name

    def stop(self):
        """Stops it, so that its log is whole."""
        self.process.send_signal(signal.SIGINT if self.name == "front-haproxy" else signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def lines(self):
        """What it saw: a dict for each request."""
        text = self.seen.read_bytes().decode("latin-1").splitlines()
        if self.name == "apache":
            return [_apache(line) for line in text]
        if "haproxy" in self.name:
            return [_haproxy(line) for line in text if "\t" in line]
        lines = [
            json.loads(re.sub(r"[\x80-\xff]", lambda match: f"\\u{ord(match[0]):04x}", line), strict=False)
            for line in text
            if line
        ]
        lines = [{**line, "status": int(line["status"])} for line in lines]
        if self.name == "gunicorn":
            refused = (self.run / "out").read_text(errors="replace").count("Invalid request")
            lines = [{**line, "folded": True} for line in lines] + [{"id": "", "status": 400}] * refused
        return lines


def _apache(line):
    """A line of its log, whose bytes are escaped as in C."""
    values = [value.encode("latin-1", "replace").decode("unicode_escape", "replace") for value in line.split("\t")]
    values = ["" if value == "-" else value for value in values]
    id, method, request, path, host, length, status, view = (values + [""] * 8)[:8]
    target = request.split(" ")[1] if request.count(" ") >= 2 else request
    return {
        "id": id,
        "method": method,
        "target": target,
        "path": path,
        "host": host,
        "length": length,
        "status": int(status or 0),
        "view": view,
    }


def _haproxy(line):
    values = line.split("\t")
    id, case, method, url, host, length, status, server = (values + [""] * 8)[:8]
    # Its lines have 4 KiB at most: a longer target is cut, and what stands behind it is missing.
    plain = lambda value: "" if value == "-" else base64.b64decode(value[: len(value) // 4 * 4]).decode("latin-1")
    method = re.sub("#([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), method)
    sent = "" if server == "<NOSRV>" else server
    return {
        "id": id,
        "case": plain(case).partition(" ")[0],
        "method": method,
        "target": plain(url),
        "host": plain(host),
        "length": length.strip("-"),
        "status": int(status) if status.isdigit() else 0,
        "sent": sent,
    }


def _build_go(go):
    """Builds Go's server, once for each state of its source."""
    source, built = HERE / "server.go", program.TOP / "target" / "peers" / "go-server"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        built.parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOCACHE": str(built.parent / "go-cache"), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
        subprocess.run([go, "build", "-o", built, source], check=True, env=env, stdout=sys.stderr)
    return built
