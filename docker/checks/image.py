"""Checks the binary as it is in the image. Does not need Docker."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from check import HERE, Failed, run

# The user of the image.
NOBODY = 65532


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def checks_of(binary, largest):
    def static():
        said = subprocess.run(["ldd", binary], capture_output=True, text=True)
        told = (said.stdout + said.stderr).strip()
        if "statically linked" not in told and "not a dynamic executable" not in told:
            raise Failed(f"ldd says: {told}")
        return told

    def small():
        size = binary.stat().st_size
        if size > largest:
            raise Failed(f"{size} bytes, more than {largest}")
        return f"{size / 2**20:.1f} MiB"

    def alone_in_an_empty_root():
        """Runs with a numeric user, a read-only root without other files, and names to look up."""
        with tempfile.TemporaryDirectory() as folder:
            return serve_from(pathlib.Path(folder), binary)

    return [static, small, alone_in_an_empty_root]


def serve_from(root, binary):
    listen, admin, upstream = free_port(), 9900, free_port()
    shutil.copy(binary, root / "mwl-proxy")
    (root / "etc/mwl-proxy").mkdir(parents=True)
    # What Docker and Kubernetes put into every container; there is not even a /dev.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.0.1 billing.internal\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/mwl-proxy/proxy.yaml").write_text(
        f"""listeners: [{{ address: "127.0.0.1:{listen}" }}]
admin: {{ address: "127.0.0.1:{admin}" }}
upstreams:
  billing: {{ endpoints: ["http://billing.internal:{upstream}"] }}
  nowhere: {{ endpoints: ["http://no-such-name.invalid:80"] }}
routes:
  - {{ name: nowhere, match: {{ pathPrefix: /nowhere }}, upstream: nowhere }}
  - {{ name: billing, upstream: billing }}
"""
    )
    for path in [root, *root.rglob("*")]:
        os.chmod(path, 0o555 if path.is_dir() or path.name == "mwl-proxy" else 0o444)

    def enter():
        os.chroot(root)
        os.chdir("/")
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    answering = subprocess.Popen(
        ["python3", "-m", "http.server", str(upstream), "--bind", "127.0.0.1", "--directory", HERE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    command = ["/mwl-proxy", "run", "-c", "/etc/mwl-proxy/proxy.yaml"]
    proxy = subprocess.Popen(command, preexec_fn=enter, env={}, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("it is not ready", lambda: ready(enter))
        wait_for("the upstream does not listen", lambda: listens(upstream))
        ask = f"http://127.0.0.1:{listen}"
        for path, wanted in [("/Dockerfile", 200), ("/nowhere", 502)]:
            status, body = answer(ask + path)
            if status != wanted:
                raise Failed(f"{path} is answered with {status}, not {wanted}: {body}")
        proxy.send_signal(signal.SIGTERM)
        if proxy.wait(5) != 0:
            raise Failed(f"SIGTERM ends it with {proxy.returncode}")
        return "it starts, is ready by its own probe, finds a name in /etc/hosts, asks DNS, and stops with 0"
    except subprocess.TimeoutExpired as error:
        raise Failed(str(error)) from error
    finally:
        for process in (proxy, answering):
            process.kill()
            process.wait()


def ready(enter):
    """Whether the binary's own probe says that it is ready."""
    asked = subprocess.run(["/mwl-proxy", "probe"], preexec_fn=enter, env={}, capture_output=True)
    return asked.returncode == 0


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answer(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as got:
            return got.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for(failing, holds):
    for _ in range(100):
        if holds():
            return
        time.sleep(0.1)
    raise Failed(f"{failing} after ten seconds")
