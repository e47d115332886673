"""The modes `wires` and `memory` of peers.py: other wires than kept HTTP/1.1 in clear, and what a process holds."""

import json
import os
import random
import re
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time

from contenders import (
    COLLECTOR,
    H2_ORIGIN,
    ORIGIN,
    PROXY,
    Wanted,
    certificate,
    connects,
    cpu,
    mwl_config,
    pinned,
    resident,
    serve,
    stop,
    until,
)
from http2 import PREFACE, SETTINGS, frame

# Name: what it is, and how the load comes.
WIRES = {
    "tls": (Wanted(tls=True), "kept"),
    "tlsnew": (Wanted(tls=True), "new"),
    "conn": (Wanted(), "new"),
    "h2c": (Wanted(h2=True), "h2"),
    "h2tls": (Wanted(tls=True, h2=True), "h2"),
    "h2h2": (Wanted(h2=True, h2up=True), "h2"),
    "plain": (Wanted(), "kept"),
    "log": (Wanted(told="log"), "kept"),
    "tracing": (Wanted(told="tracing"), "kept"),
    "pace": (Wanted(), "pace"),
}
PACE = 4000
URL = f"127.0.0.1:{PROXY}/1k"


def mwl(bench, wanted):
    """The proxy's command in a case."""
    files = {"tls": {"certificate": f"{bench.run}/cert.pem", "key": f"{bench.run}/key.pem"}}
    origin = {"endpoints": [f"http://127.0.0.1:{H2_ORIGIN if wanted.h2up else ORIGIN}"]}
    if wanted.h2up:
        origin["protocol"] = "http2"
    keys = {
        "listeners": [{"address": f"127.0.0.1:{PROXY}", **(files if wanted.tls else {})}],
        "limits": {"workers": 1, "streams": 1024},
    }
    if wanted.told == "log":
        keys["log"] = {"access": {"when": "all"}}
    if wanted.told == "tracing":
        keys["tracing"] = {"otlp": {"endpoint": f"http://127.0.0.1:{COLLECTOR}"}, "sample": 1}
    path = mwl_config(os.path.join(bench.run, "wires.json"), upstreams={"origin": origin}, **keys)
    return [os.path.abspath(bench.options.mwl), "run", "-c", path]


def contenders(bench):
    makes = bench.peers.there("nginx", "haproxy", "nghttpx", "envoy")
    makes["mwl"] = lambda wanted: mwl(bench, wanted)
    only = bench.options.only
    return {name: make for name, make in makes.items() if not only or name in only.split(",")}


def load(bench, url, how):
    """Sends load of this kind for some seconds. Returns how many requests were answered, and for `pace` the latencies in
    microseconds at 50, 99 and 99.9%."""
    seconds = bench.options.seconds
    one = ["taskset", "-c", "1"]
    for _ in range(5):
        if how in ("kept", "new"):
            close = ["-H", "Connection: close"] if how == "new" else []
            command = [*one, "wrk", "-t1", "-c32", f"-d{seconds}s", "--timeout", "5s", *close, url]
            found = re.search(r"(\d+) requests in", said(command))
        elif how == "h2":
            found = re.search(r"(\d+) 2xx", said([*one, "h2load", "-t1", "-c8", "-m16", f"-D{seconds}", url]))
        else:
            log = os.path.join(bench.run, "pace")
            open(log, "w").close()
            rate = ["-c32", "-m1", f"--rps={PACE // 32}", f"-D{seconds}", f"--log-file={log}"]
            said([*one, "h2load", "--h1", "-t1", *rate, url])
            rows = (line.split("\t") for line in open(log))
            took = sorted(int(row[2]) for row in rows if row[1] == "200")
            if len(took) > PACE // 4:
                return len(took), [took[int(len(took) * share)] for share in (0.5, 0.99, 0.999)]
            found = None
        if found and int(found[1]):
            return int(found[1]), None
        time.sleep(0.5)
    raise RuntimeError("no load")


def said(command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def collect(stream):
    """Takes spans, and forgets them."""
    read = b""
    while part := stream.recv(1 << 20):
        read += part
        while (head := read.find(b"\r\n\r\n")) >= 0:
            length = int(re.search(rb"(?i)content-length: (\d+)", read[:head])[1])
            if len(read) < head + 4 + length:
                break
            read = read[head + 4 + length :]
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def wires(bench):
    """CPU microseconds of a request in each case, ratios, and latencies at a set pace."""
    certificate(bench.run)
    names = contenders(bench)
    wanted = bench.options.cases.split(",") if bench.options.cases else list(WIRES)
    if unknown := [case for case in wanted if case not in WIRES]:
        sys.exit(f"no case is called {', '.join(unknown)}; the cases are {', '.join(WIRES)}")
    os.sched_setaffinity(0, {1})
    origins, rows = [bench.start_origin()], []
    if shutil.which("nghttpd"):
        with open(os.path.join(bench.run, "1k"), "w") as file:
            file.write("x" * 1024)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["nghttpd", "--no-tls", "-n1", "-m1024", "-d", bench.run, str(H2_ORIGIN)]
        origins.append(subprocess.Popen(command, **quiet))
    else:
        wanted = [case for case in wanted if not WIRES[case][0].h2up]
    serve(collect, COLLECTOR)
    try:
        for rep in range(bench.options.reps):
            for case in wanted:
                what, how = WIRES[case]
                order = list(names)
                random.Random(rep).shuffle(order)
                for name in order:
                    command = names[name](what)
                    if not command:
                        continue
                    try:
                        row = one(bench, command, f"http{'s' if what.tls else ''}://{URL}", how)
                        rows.append({"rep": rep, "name": name, "case": case, **row})
                    except (RuntimeError, OSError) as error:
                        print(f"{name} {case}, repetition {rep + 1}: {error}", flush=True)
    finally:
        for origin in origins:
            stop(origin)
    report(rows, wanted)
    return rows


def one(bench, command, url, how):
    log = open(os.path.join(bench.run, "err"), "w")
    process = pinned(0, command, stdout=subprocess.DEVNULL, stderr=log, cwd=bench.run)
    try:
        until(lambda: connects(PROXY), process, 20)
        load(bench, url, how)
        before = cpu(process.pid)
        served, latency = load(bench, url, how)
        return {"us": (cpu(process.pid) - before) / served * 1e6, "latency": latency}
    finally:
        stop(process)


def report(rows, wanted):
    def figures(name, case, figure):
        return {row["rep"]: figure(row) for row in rows if (row["name"], row["case"]) == (name, case)}

    names = list(dict.fromkeys(row["name"] for row in rows))
    for case in wanted:
        paced = WIRES[case][1] == "pace"
        figure = (lambda row: row["latency"][1]) if paced else (lambda row: row["us"])
        by_name = {name: row for name in names if (row := figures(name, case, figure))}
        shown = [f"{name} {statistics.median(row.values()):.1f}" for name, row in by_name.items()]
        what = f"p99 in microseconds at {PACE} requests a second" if paced else "microseconds a request"
        print(f"{case}: {what}: " + ", ".join(shown))
        own = by_name.get("mwl", {})
        ratios = {
            name: statistics.median(own[rep] / row[rep] for rep in own if row.get(rep))
            for name, row in by_name.items()
            if name != "mwl" and any(row.get(rep) for rep in own)
        }
        if ratios:
            print("    mwl / " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    plain = figures("mwl", "plain", lambda row: row["us"])
    for case in ("log", "tracing"):
        told = figures("mwl", case, lambda row: row["us"])
        both = [told[rep] / plain[rep] for rep in told if plain.get(rep)]
        if both:
            print(f"{case}: {statistics.median(both):.2f} of mwl without it")


def resumed(bench):
    """CPU time of a connection with one request: with a full TLS handshake, and with a resumed one."""
    certificate(bench.run)
    origin, rows = bench.start_origin(), {}
    count = 400
    try:
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            for resumes in (False, True):
                process = pinned(0, mwl(bench, Wanted(tls=True)))
                until(lambda: connects(PROXY), process, 20)
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.minimum_version = context.maximum_version = version
                session = shake(context, None)[0]
                before, reused = ran(process.pid), 0
                for _ in range(count):
                    session, again = shake(context, session if resumes else None)
                    reused += again
                took = (ran(process.pid) - before) / count / 1000
                stop(process)
                rows[f"{version.name} {'resumed' if resumes else 'full'}"] = took
                print(f"{version.name} {'resumed' if resumes else 'full'}: {took:.0f} microseconds ({reused} of {count} resumed)")
            print(f"    {rows[version.name + ' resumed'] / rows[version.name + ' full']:.2f}")
    finally:
        stop(origin)
    return rows


def ran(pid):
    """How long the threads of a process ran, in nanoseconds: ticks are too coarse for connections one after another."""
    threads = os.listdir(f"/proc/{pid}/task")
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in threads)


def shake(context, session):
    """A connection with one request. Returns its session, and whether it resumed the one that was given."""
    with socket.create_connection(("127.0.0.1", PROXY), 10) as clear:
        clear.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(clear, server_hostname="localhost", session=session) as stream:
            stream.sendall(b"GET /1k HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            while stream.recv(65536):
                pass
            return stream.session, stream.session_reused


# --- memory --------------------------------------------------------------------------------------------


def memory(bench):
    """Resident memory by upstreams, routes and idle connections, and what one more of each takes."""
    files = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 110_000)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    except (ValueError, OSError):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    certificate(bench.run)
    origin = bench.start_origin()
    try:
        return scaled(bench, files)
    finally:
        stop(origin)


def scaled(bench, files):
    rows = []
    table("upstreams", (1, 10, 100, 1000), lambda count: held(bench, upstreams=count), rows)
    table("routes", (10, 100, 1000, 10_000), lambda count: held(bench, routes=count), rows)
    for kind in ("http1", "http2", "tls"):
        # The proxy keeps half of its descriptors for upstreams.
        counts = [count for count in (1000, 9000, 50_000) if 2 * count + 1000 < files]
        table(f"idle {kind}", (0, *counts), lambda count: held(bench, idle=(kind, count)), rows)
    return rows


def table(what, counts, measure, rows):
    figures = {count: measure(count) for count in counts}
    rows.append({"what": what, "KiB": figures})
    first, last = min(figures), max(figures)
    each = (figures[last] - figures[first]) / max(last - first, 1)
    shown = ", ".join(f"{count}: {kib / 1024:.1f} MiB" for count, kib in figures.items())
    print(f"{what}: {shown}; {each:.2f} KiB for each more", flush=True)


def held(bench, upstreams=1, routes=1, idle=(None, 0)):
    """Resident KiB of a process with so much of everything."""
    kind, count = idle
    config = json.load(open(mwl(bench, Wanted(tls=kind == "tls"))[-1]))
    config["limits"].update({"connections": 60_000, "idleTimeout": "PT1H"})
    for number in range(1, upstreams):
        config["upstreams"][f"u{number}"] = {"endpoints": [f"http://127.0.0.1:{ORIGIN}"]}
    policy = bench.options.policy
    table = [
        {"name": f"r{number}", "match": {"pathPrefix": f"/r{number}"}, "upstream": "origin", "middleware": policy}
        for number in range(1, routes)
    ]
    config["routes"] = [*table, *config["routes"]]
    path = bench.peers.write("held.json", json.dumps(config))
    process = pinned(None, [os.path.abspath(bench.options.mwl), "run", "-c", path])
    streams = []
    try:
        until(lambda: connects(PROXY), process, 60)
        time.sleep(1)
        for number in range(count):
            streams.append(opened(kind, number))
        # The memory of a burst is given back after a tick of the watch.
        time.sleep(3)
        return round(resident(process.pid) * 1024)
    finally:
        for stream in streams:
            stream.close()
        stop(process)


# The fields of a GET of /1k, by their numbers in HPACK's static table (RFC 7541).
FIELDS = b"\x82\x86\x04\x03/1k\x01\x05bench"
BEGIN = PREFACE + frame(SETTINGS, 0, 0)


def opened(kind, number):
    """A connection that has had a request answered, and is idle."""
    # A source address has some 28,000 ports.
    source = (f"127.0.0.{2 + number // 20_000}", 0)
    stream = socket.create_connection(("127.0.0.1", PROXY), 20, source_address=source)
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = context.wrap_socket(stream)
    if kind == "http2":
        stream.sendall(BEGIN + frame(SETTINGS, 1, 0) + frame(1, 5, 1, FIELDS))
    else:
        stream.sendall(b"GET /1k HTTP/1.1\r\nHost: bench\r\n\r\n")
    answer = b""
    while b"x" * 1024 not in answer:
        part = stream.recv(65536)
        if not part:
            raise RuntimeError(f"closed after {answer[:80]!r}")
        answer += part
    if kind == "tls":
        # What this side needs for TLS is forgotten; the connection stays.
        return socket.socket(fileno=stream.detach())
    return stream
