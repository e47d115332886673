"""What the benches share: the proxies that they compare and how these are started, processes, certificates, and origins
inside the bench's own process."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass

TICK = os.sysconf("SC_CLK_TCK")
KIB = 1024
ORIGIN, SECOND, H2_ORIGIN, COLLECTOR, PROXY, ADMIN = 29000, 29001, 29002, 29003, 28080, 29900

NGINX = """
worker_processes 1; daemon off; {master} error_log {run}/nginx.err crit; pid {run}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log {log}; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 60s;
  http2_max_concurrent_streams 1024;
  client_body_buffer_size 64k; proxy_buffer_size 16k; proxy_buffers 8 32k; proxy_busy_buffers_size 128k;
  proxy_max_temp_file_size 0; client_body_temp_path {run}/b; proxy_temp_path {run}/p;
  fastcgi_temp_path {run}/f; uwsgi_temp_path {run}/u; scgi_temp_path {run}/s;
  upstream origin {{
    server 127.0.0.1:{origin} max_fails=0; {second}
    keepalive 1024; keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{proxy} backlog=4096 {listen}; {tls}
    location / {{
      proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host; {policy}
    }}
  }}
}}
"""
NGINX_TLS = (
    "ssl_certificate {run}/cert.pem; ssl_certificate_key {run}/key.pem; ssl_session_cache off; ssl_session_tickets off;"
)
NGINX_POLICY = (
    "proxy_next_upstream error timeout http_503 non_idempotent; proxy_next_upstream_tries 3; "
    "proxy_next_upstream_timeout 5s; proxy_connect_timeout 1s; proxy_read_timeout 1s; proxy_send_timeout 1s;"
)
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
  timeout server {bound}
  option http-keep-alive
  http-reuse always
{policy}
frontend front
  bind 127.0.0.1:{proxy} {bind}
  default_backend back
backend back
  balance roundrobin
  server one 127.0.0.1:{origin} {server}
{second}
"""
HAPROXY_POLICY = """
  retries 2
  retry-on conn-failure empty-response response-timeout 503
  option redispatch 1
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
          route_config:
            virtual_hosts:
            - {{ name: all, domains: ['*'], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: back, {policy} }} }}] }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              '@type': {types}.filters.http.router.v3.Router
              dynamic_stats: false
              suppress_envoy_headers: true
      {tls}
  clusters:
  - name: back
    connect_timeout: 1s
    {kind}
    circuit_breakers:
      thresholds: [{{ max_connections: 8192, max_pending_requests: 8192, max_requests: 8192, max_retries: 8192 }}]
    load_assignment: {{ cluster_name: back, endpoints: [{{ lb_endpoints: [{endpoints}] }}] }}
"""
ENVOY_POLICY = (
    "timeout: 5s, retry_policy: { retry_on: 5xx, num_retries: 2, per_try_timeout: 1s, "
    "retry_back_off: { base_interval: 0.001s, max_interval: 0.001s } }"
)
TYPES = "type.googleapis.com/envoy.extensions"
ENVOY_LOG = f"access_log: [{{ name: log, typed_config: {{ '@type': {TYPES}.access_loggers.file.v3.FileAccessLog, path: /dev/null }} }}]"
ENVOY_HTTP2 = (
    "typed_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { "
    f"'@type': {TYPES}.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {{ http2_protocol_options: {{}} }} }} }}"
)


def middleware(name, space="mwl", **phases):
    return {"provider": f"mwl:provider.middleware/{space}/{name}/v1", **phases}


def entry(name, **arguments):
    return middleware(name, onEntry={"with": arguments})


def own(name, **arguments):
    return middleware(name, "mwl-proxy", onEntry={"with": arguments})


def certificate(run):
    """A self-signed certificate with an ECDSA key on P-256, in the folder `run`: apart, and in one file."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "9"]
    files = ["-keyout", f"{run}/key.pem", "-out", f"{run}/cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *key, *subject, *files], check=True, capture_output=True)
    with open(f"{run}/both.pem", "w") as both:
        both.write(open(f"{run}/cert.pem").read() + open(f"{run}/key.pem").read())


@dataclass(frozen=True)
class Wanted:
    """What a contender is to do."""

    # TLS, HTTP/2 from clients, HTTP/2 to the origin.
    tls: bool = False
    h2: bool = False
    h2up: bool = False
    # What is told of each request: nothing, a line of a `log`, or `tracing`.
    told: str | None = None
    # Up to three attempts on two origins, with bounds.
    policy: bool = False
    # One process, so that a tool which follows it sees all.
    single: bool = False


class Contenders:
    """The other proxies. Each gives its command, or none where it cannot do what is wanted."""

    def __init__(self, run):
        self.run = run

    def write(self, name, text):
        path = os.path.join(self.run, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def nginx(self, wanted):
        if wanted.h2up or wanted.told == "tracing":
            return None
        text = NGINX.format(
            run=self.run,
            origin=ORIGIN,
            proxy=PROXY,
            master="master_process off;" if wanted.single else "",
            log="/dev/null combined" if wanted.told else "off",
            listen=("ssl " if wanted.tls else "") + ("http2" if wanted.h2 else ""),
            tls=NGINX_TLS.format(run=self.run) if wanted.tls else "",
            second=f"server 127.0.0.1:{SECOND} max_fails=0;" if wanted.policy else "",
            policy=NGINX_POLICY if wanted.policy else "",
        )
        return ["nginx", "-c", self.write("nginx.conf", text)]

    def haproxy(self, wanted):
        if wanted.told:
            return None
        alpn = "h2" if wanted.h2 else "http/1.1"
        clear = "proto h2" if wanted.h2 else ""
        text = HAPROXY.format(
            proxy=PROXY,
            origin=H2_ORIGIN if wanted.h2up else ORIGIN,
            bound="1s" if wanted.policy else "60s",
            bind=f"ssl crt {self.run}/both.pem no-tls-tickets alpn {alpn}" if wanted.tls else clear,
            server="proto h2" if wanted.h2up else "",
            second=f"  server two 127.0.0.1:{SECOND}" if wanted.policy else "",
            policy=HAPROXY_POLICY if wanted.policy else "",
        )
        return ["haproxy", "-f", self.write("haproxy.cfg", text)]

    def nghttpx(self, wanted):
        if wanted.told or wanted.policy or not (wanted.h2 or wanted.tls):
            return None
        front = f"-f127.0.0.1,{PROXY}" + ("" if wanted.tls else ";no-tls")
        back = f"-b127.0.0.1,{H2_ORIGIN};;proto=h2" if wanted.h2up else f"-b127.0.0.1,{ORIGIN}"
        quiet = ["--accesslog-file=/dev/null", "--errorlog-file=/dev/null", "--conf=/dev/null"]
        files = [f"{self.run}/key.pem", f"{self.run}/cert.pem"] if wanted.tls else []
        return ["nghttpx", "-n1", front, back, *quiet, "--frontend-http2-max-concurrent-streams=1024", *files]

    def envoy(self, wanted):
        if wanted.told == "tracing":
            return None

        def at(port):
            address = f"{{ address: 127.0.0.1, port_value: {port} }}"
            return f"{{ endpoint: {{ address: {{ socket_address: {address} }} }} }}"

        origin = H2_ORIGIN if wanted.h2up else ORIGIN
        chain = f"{{ certificate_chain: {{ filename: {self.run}/cert.pem }}, private_key: {{ filename: {self.run}/key.pem }} }}"
        common = f"common_tls_context: {{ alpn_protocols: [{'h2' if wanted.h2 else 'http/1.1'}], tls_certificates: [{chain}] }}"
        context = f"'@type': {TYPES}.transport_sockets.tls.v3.DownstreamTlsContext, disable_stateful_session_resumption: true, disable_stateless_session_resumption: true, {common}"
        text = ENVOY.format(
            types=TYPES,
            proxy=PROXY,
            codec="HTTP2" if wanted.h2 else "HTTP1",
            log=ENVOY_LOG if wanted.told else "access_log: []",
            tls=f"transport_socket: {{ name: envoy.transport_sockets.tls, typed_config: {{ {context} }} }}" if wanted.tls else "",
            kind=ENVOY_HTTP2 if wanted.h2up else "type: STATIC",
            policy=ENVOY_POLICY if wanted.policy else "timeout: 0s",
            endpoints=", ".join(map(at, [ORIGIN, SECOND] if wanted.policy else [origin])),
        )
        common = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        return ["envoy", *common, "-c", self.write("envoy.yaml", text)]

    def there(self, *names):
        """Those of these proxies that are on PATH."""
        missing = [name for name in names if not shutil.which(name)]
        for name in missing:
            print(f"{name} is not on PATH: left out")
        return {name: getattr(self, name) for name in names if name not in missing}


# --- processes -----------------------------------------------------------------------------------------


def pinned(core, command, **how):
    how.setdefault("stdout", subprocess.DEVNULL)
    how.setdefault("stderr", subprocess.DEVNULL)
    pin = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    return subprocess.Popen(command, preexec_fn=pin, **how)


def until(ready, process, patience):
    end = time.time() + patience
    while not ready():
        if process.poll() is not None or time.time() > end:
            raise RuntimeError(f"{process.args[0]} does not serve")
        time.sleep(0.05)


def stop(process):
    pids = tree(process.pid)
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # It ended with its parent.
    time.sleep(0.2)


def tree(pid):
    """`pid` and its descendants."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{name}/stat").read()
        except OSError:
            continue
        parent = int(stat[stat.rindex(")") + 2 :].split()[1])
        children.setdefault(parent, []).append(int(name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def cpu(pid):
    """The CPU time of a process and its descendants, in seconds."""
    ticks = 0
    for one in tree(pid):
        try:
            stat = open(f"/proc/{one}/stat").read()
        except OSError:
            continue
        ticks += sum(map(int, stat[stat.rindex(")") + 2 :].split()[11:13]))
    return ticks / TICK


def resident(pid):
    """Resident memory, in MiB."""
    maps = (open(f"/proc/{one}/smaps_rollup").read() for one in tree(pid))
    return sum(int(re.search(r"Rss:\s+(\d+)", text)[1]) for text in maps) / KIB


# --- inside of this process ------------------------------------------------------------------------------


def serve(each, port=0):
    """Gives each connection to a thread that runs `each`, and returns the port."""
    listener = socket.create_server(("127.0.0.1", port))

    def accept():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=each, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def mwl_config(path, stack=(), upstreams=None, **keys):
    """Writes the proxy's file: one route for all, with a stack, before the upstream `origin`; `keys` come on top."""
    route = {"name": "all", "match": {"pathPrefix": "/"}, "upstream": "origin", "middleware": list(stack)}
    config = {
        "listeners": [{"address": f"127.0.0.1:{PROXY}"}],
        "upstreams": {"origin": {"endpoints": [f"http://127.0.0.1:{ORIGIN}"]}, **(upstreams or {})},
        **keys,
        "routes": [*keys.get("routes", []), route],
    }
    with open(path, "w") as file:
        json.dump(config, file)
    return path
