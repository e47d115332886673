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
import tempfile
import threading
import time

# Name: TLS, HTTP/2 from clients, HTTP/2 to the origin, what is told of each request, how the load comes.
WIRES = {
    "tls": (True, False, False, None, "kept"),
    "tlsnew": (True, False, False, None, "new"),
    "conn": (False, False, False, None, "new"),
    "h2c": (False, True, False, None, "h2"),
    "h2tls": (True, True, False, None, "h2"),
    "h2h2": (False, True, True, None, "h2"),
    "plain": (False, False, False, None, "kept"),
    "log": (False, False, False, "log", "kept"),
    "tracing": (False, False, False, "tracing", "kept"),
    "pace": (False, False, False, None, "pace"),
}
H2_ORIGIN, COLLECTOR = 29002, 29003
PACE = 4000

NGINX = """
worker_processes 1; daemon off; error_log {run}/nginx.err crit; pid {run}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log {log}; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 60s;
  http2_max_concurrent_streams 1024; client_body_temp_path {run}/b; proxy_temp_path {run}/p;
  fastcgi_temp_path {run}/f; uwsgi_temp_path {run}/u; scgi_temp_path {run}/s;
  upstream origin {{ server 127.0.0.1:{origin} max_fails=0; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{proxy} backlog=4096 {listen}; {tls}
    location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 8192
  tune.ssl.cachesize 0
  tune.h2.max-concurrent-streams 1024
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend front
  bind 127.0.0.1:{proxy} {bind}
  default_backend back
backend back
  server one 127.0.0.1:{origin} {server}
"""
ENVOY = """
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {proxy} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': {types}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          codec_type: {codec}
          generate_request_id: false
          {log}
          route_config: {{ virtual_hosts: [{{ name: all, domains: ['*'], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: back, timeout: 0s }} }}] }}] }}
          http_filters: [{{ name: envoy.filters.http.router, typed_config: {{ '@type': {types}.filters.http.router.v3.Router, dynamic_stats: false, suppress_envoy_headers: true }} }}]
      {tls}
  clusters:
  - name: back
    connect_timeout: 1s
    {kind}
    circuit_breakers: {{ thresholds: [{{ max_connections: 8192, max_pending_requests: 8192, max_requests: 8192 }}] }}
    load_assignment: {{ cluster_name: back, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {origin} }} }} }} }}] }}] }}
"""
TYPES = "type.googleapis.com/envoy.extensions"


def certificate(run):
    """A self-signed certificate with an ECDSA key on P-256."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "9"]
    files = ["-keyout", f"{run}/key.pem", "-out", f"{run}/cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *key, *subject, *files], check=True, capture_output=True)
    with open(f"{run}/both.pem", "w") as both:
        both.write(open(f"{run}/cert.pem").read() + open(f"{run}/key.pem").read())


class Wires:
    """The contenders of a case. Each gives its command, or none where it cannot do that."""

    def __init__(self, bench, ports):
        self.bench, self.run = bench, bench.run
        self.origin, self.proxy = ports
        certificate(self.run)

    def back(self, h2up):
        return H2_ORIGIN if h2up else self.origin

    def nginx(self, tls, h2, h2up, told):
        if h2up or told == "tracing":
            return None
        files = f"ssl_certificate {self.run}/cert.pem; ssl_certificate_key {self.run}/key.pem;"
        text = NGINX.format(
            run=self.run,
            origin=self.origin,
            proxy=self.proxy,
            log="/dev/null combined" if told else "off",
            listen=("ssl " if tls else "") + ("http2" if h2 else ""),
            tls=files + " ssl_session_cache off; ssl_session_tickets off;" if tls else "",
        )
        return ["nginx", "-c", self.bench.write("nginx-wires.conf", text)]

    def haproxy(self, tls, h2, h2up, told):
        if told:
            return None
        alpn = "h2" if h2 else "http/1.1"
        bind = f"ssl crt {self.run}/both.pem no-tls-tickets alpn {alpn}" if tls else "proto h2" if h2 else ""
        server = "proto h2" if h2up else ""
        text = HAPROXY.format(proxy=self.proxy, origin=self.back(h2up), bind=bind, server=server)
        return ["haproxy", "-f", self.bench.write("haproxy-wires.cfg", text)]

    def nghttpx(self, tls, h2, h2up, told):
        if told or not (h2 or tls):
            return None
        front = f"-f127.0.0.1,{self.proxy}" + ("" if tls else ";no-tls")
        back = f"-b127.0.0.1,{self.back(h2up)}" + (";;proto=h2" if h2up else "")
        quiet = ["--accesslog-file=/dev/null", "--errorlog-file=/dev/null", "--conf=/dev/null"]
        files = [f"{self.run}/key.pem", f"{self.run}/cert.pem"] if tls else []
        return ["nghttpx", "-n1", front, back, *quiet, "--frontend-http2-max-concurrent-streams=1024", *files]

    def envoy(self, tls, h2, h2up, told):
        if told == "tracing":
            return None
        chain = f"{{ certificate_chain: {{ filename: {self.run}/cert.pem }}, private_key: {{ filename: {self.run}/key.pem }} }}"
        common = f"common_tls_context: {{ alpn_protocols: [{'h2' if h2 else 'http/1.1'}], tls_certificates: [{chain}] }}"
        context = f"'@type': {TYPES}.transport_sockets.tls.v3.DownstreamTlsContext, disable_stateful_session_resumption: true, disable_stateless_session_resumption: true, {common}"
        log = f"access_log: [{{ name: log, typed_config: {{ '@type': {TYPES}.access_loggers.file.v3.FileAccessLog, path: /dev/null }} }}]"
        http2 = f"typed_extension_protocol_options: {{ envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {{ '@type': {TYPES}.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {{ http2_protocol_options: {{}} }} }} }}"
        text = ENVOY.format(
            types=TYPES,
            proxy=self.proxy,
            origin=self.back(h2up),
            codec="HTTP2" if h2 else "HTTP1",
            log=log if told else "access_log: []",
            tls=f"transport_socket: {{ name: envoy.transport_sockets.tls, typed_config: {{ {context} }} }}" if tls else "",
            kind=http2 if h2up else "type: STATIC",
        )
        path = self.bench.write("envoy-wires.yaml", text)
        return ["envoy", "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", path]

    def mwl(self, tls, h2, h2up, told):
        files = {"tls": {"certificate": f"{self.run}/cert.pem", "key": f"{self.run}/key.pem"}}
        config = {
            "listeners": [{"address": f"127.0.0.1:{self.proxy}", **(files if tls else {})}],
            "limits": {"workers": 1, "streams": 1024},
            "upstreams": {"origin": {"endpoints": [f"http://127.0.0.1:{self.back(h2up)}"]}},
            "routes": [{"name": "all", "match": {"pathPrefix": "/"}, "upstream": "origin"}],
        }
        if h2up:
            config["upstreams"]["origin"]["protocol"] = "http2"
        if told == "log":
            config["log"] = {"access": {"when": "all"}}
        if told == "tracing":
            config["tracing"] = {"otlp": {"endpoint": f"http://127.0.0.1:{COLLECTOR}"}, "sample": 1}
        return [os.path.abspath(self.bench.options.mwl), "run", "-c", self.bench.write("wires.json", json.dumps(config))]

    def contenders(self):
        makes = {name: getattr(self, name) for name in ("nginx", "haproxy", "nghttpx", "envoy", "mwl")}
        only = self.bench.options.only
        return {
            name: make
            for name, make in makes.items()
            if (name == "mwl" or shutil.which(name)) and (not only or name in only.split(","))
        }


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


def collector():
    """Takes spans in this process, and forgets them."""
    listener = socket.create_server(("127.0.0.1", COLLECTOR))

    def serve(stream):
        read = b""
        while part := stream.recv(1 << 20):
            read += part
            while (head := read.find(b"\r\n\r\n")) >= 0:
                length = int(re.search(rb"(?i)content-length: (\d+)", read[:head])[1])
                if len(read) < head + 4 + length:
                    break
                read = read[head + 4 + length :]
                stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def accept():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wires(bench, tools, ports):
    """CPU microseconds of a request in each case, ratios, and latencies at a set pace."""
    proxy = ports[1]
    kit = Wires(bench, ports)
    wanted = bench.options.cases.split(",") if bench.options.cases else list(WIRES)
    os.sched_setaffinity(0, {1})
    origins, rows = [bench.start_origin()], []
    if shutil.which("nghttpd"):
        with open(os.path.join(bench.run, "1k"), "w") as file:
            file.write("x" * 1024)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["nghttpd", "--no-tls", "-n1", "-m1024", "-d", bench.run, str(H2_ORIGIN)]
        origins.append(subprocess.Popen(command, **quiet))
    else:
        wanted = [case for case in wanted if not WIRES[case][2]]
    collector()
    try:
        for rep in range(bench.options.reps):
            for case in wanted:
                *what, how = WIRES[case]
                names = list(kit.contenders().items())
                random.Random(rep).shuffle(names)
                for name, make in names:
                    command = make(*what)
                    if not command:
                        continue
                    try:
                        row = one(bench, tools, command, f"http{'s' if what[0] else ''}://127.0.0.1:{proxy}/1k", how, proxy)
                        rows.append({"rep": rep, "name": name, "case": case, **row})
                    except (RuntimeError, OSError) as error:
                        print(f"{name} {case}, repetition {rep + 1}: {error}", flush=True)
    finally:
        for origin in origins:
            tools.stop(origin)
    report(rows, wanted)
    return rows


def one(bench, tools, command, url, how, port):
    log = open(os.path.join(bench.run, "err"), "w")
    process = tools.pinned(0, command, stdout=subprocess.DEVNULL, stderr=log, cwd=bench.run)
    try:
        tools.until(lambda: connects(port), process, 20)
        load(bench, url, how)
        before = tools.cpu(process.pid)
        served, latency = load(bench, url, how)
        return {"us": (tools.cpu(process.pid) - before) / served * 1e6, "latency": latency}
    finally:
        tools.stop(process)


def report(rows, wanted):
    def figures(name, case, figure):
        return {row["rep"]: figure(row) for row in rows if (row["name"], row["case"]) == (name, case)}

    names = list(dict.fromkeys(row["name"] for row in rows))
    for case in wanted:
        paced = WIRES[case][4] == "pace"
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


def resumed(bench, tools, ports):
    """CPU time of a connection with one request: with a full TLS handshake, and with a resumed one."""
    kit = Wires(bench, ports)
    origin, rows = bench.start_origin(), {}
    count = 400
    try:
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            for resumes in (False, True):
                process = tools.pinned(0, kit.mwl(True, False, False, None))
                tools.until(lambda: connects(ports[1]), process, 20)
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.minimum_version = context.maximum_version = version
                session = shake(context, ports[1], None)[0]
                before, reused = tools.cpu(process.pid), 0
                for _ in range(count):
                    session, again = shake(context, ports[1], session if resumes else None)
                    reused += again
                took = (tools.cpu(process.pid) - before) / count * 1e6
                tools.stop(process)
                rows[f"{version.name} {'resumed' if resumes else 'full'}"] = took
                print(f"{version.name} {'resumed' if resumes else 'full'}: {took:.0f} microseconds ({reused} of {count} resumed)")
            print(f"    {rows[version.name + ' resumed'] / rows[version.name + ' full']:.2f}")
    finally:
        tools.stop(origin)
    return rows


def shake(context, port, session):
    """A connection with one request. Returns its session, and whether it resumed the one that was given."""
    with socket.create_connection(("127.0.0.1", port), 10) as clear:
        with context.wrap_socket(clear, server_hostname="localhost", session=session) as stream:
            stream.sendall(b"GET /1k HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            while stream.recv(65536):
                pass
            return stream.session, stream.session_reused


# --- memory --------------------------------------------------------------------------------------------


def memory(bench, tools, ports):
    """Resident memory by upstreams, routes and idle connections, and what one more of each takes."""
    files = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 110_000)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    except (ValueError, OSError):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    kit, origin = Wires(bench, ports), bench.start_origin()
    try:
        return scaled(bench, tools, kit, ports, files)
    finally:
        tools.stop(origin)


def scaled(bench, tools, kit, ports, files):
    rows = []
    table("upstreams", (1, 10, 100, 1000), lambda count: held(bench, tools, kit, ports, upstreams=count), rows)
    table("routes", (10, 100, 1000, 10_000), lambda count: held(bench, tools, kit, ports, routes=count), rows)
    for kind in ("http1", "http2", "tls"):
        # The proxy keeps half of its descriptors for upstreams.
        counts = [count for count in (1000, 9000, 50_000) if 2 * count + 1000 < files]
        table(f"idle {kind}", (0, *counts), lambda count: held(bench, tools, kit, ports, idle=(kind, count)), rows)
    return rows


def table(what, counts, measure, rows):
    figures = {count: measure(count) for count in counts}
    rows.append({"what": what, "KiB": figures})
    first, last = min(figures), max(figures)
    each = (figures[last] - figures[first]) / max(last - first, 1)
    shown = ", ".join(f"{count}: {kib / 1024:.1f} MiB" for count, kib in figures.items())
    print(f"{what}: {shown}; {each:.2f} KiB for each more", flush=True)


def held(bench, tools, kit, ports, upstreams=1, routes=1, idle=(None, 0)):
    """Resident KiB of a process with so much of everything."""
    kind, count = idle
    config = json.load(open(kit.mwl(kind == "tls", False, False, None)[-1]))
    config["limits"].update({"connections": 60_000, "idleTimeout": "PT1H"})
    for number in range(1, upstreams):
        config["upstreams"][f"u{number}"] = {"endpoints": [f"http://127.0.0.1:{ports[0]}"]}
    policy = bench.options.policy
    table = [
        {"name": f"r{number}", "match": {"pathPrefix": f"/r{number}"}, "upstream": "origin", "middleware": policy}
        for number in range(1, routes)
    ]
    config["routes"] = [*table, *config["routes"]]
    path = bench.write("held.json", json.dumps(config))
    process = tools.pinned(None, [os.path.abspath(bench.options.mwl), "run", "-c", path])
    streams = []
    try:
        tools.until(lambda: connects(ports[1]), process, 60)
        time.sleep(1)
        for number in range(count):
            streams.append(opened(kind, ports[1], number))
        # The memory of a burst is given back after a tick of the watch.
        time.sleep(3)
        return round(tools.resident(process.pid) * 1024)
    finally:
        for stream in streams:
            stream.close()
        tools.stop(process)


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2 (RFC 9113 §4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# The fields of a GET of /1k, by their numbers in HPACK's static table (RFC 7541).
FIELDS = b"\x82\x86\x04\x03/1k\x01\x05bench"
BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)


def opened(kind, port, number):
    """A connection that has had a request answered, and is idle."""
    # A source address has some 28,000 ports.
    source = (f"127.0.0.{2 + number // 20_000}", 0)
    stream = socket.create_connection(("127.0.0.1", port), 20, source_address=source)
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = context.wrap_socket(stream)
    if kind == "http2":
        stream.sendall(BEGIN + frame(4, 1, 0) + frame(1, 5, 1, FIELDS))
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
