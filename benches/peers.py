#!/usr/bin/env python3
"""Compares mwl-proxy with other proxies: the cost of a request, in one run on one machine.

    benches/peers.py [times]      CPU time of a request by case, and memory, as ratios of figures measured together
    benches/peers.py deep         user-space instructions (callgrind) and system calls (strace) of a request; repeatable
    benches/peers.py prices       the same two for what a policy adds: an audit in a Finally, a Retry-After expression
    benches/peers.py routes       the same two for 10 and 10,000 routes, and how long the long table takes to load
    benches/peers.py workers      the load that two workers can serve, divided by the load that one can serve
    benches/peers.py connects     upstream connections and failed answers per request, when one answer in ten is a 503
    benches/peers.py start        from the start of the process to the first answer
    benches/peers.py wires        CPU time over TLS and HTTP/2, with new connections, with an access log and with tracing, and
                                  latency at a set pace (--cases tls,conn,log,…)
    benches/peers.py load         latency in an open loop: at shares of each one's limit, beside a large transfer, with reloads
    benches/peers.py resumed      CPU time of a resumed TLS handshake, and of a full one
    benches/peers.py memory       resident memory by upstreams, routes and idle connections
    benches/peers.py all          all of these, one after another

Options: --mwl BINARY (target/release/mwl-proxy), --only NAME,…, --cases NAME,…, --reps N, --seconds N, --json FILE.

The peers are nginx, haproxy, nghttpx and envoy; one that is not on PATH is left out. `floor` is the HTTP library alone
(`benches/tools`, built here). The load comes from `wrk` and `h2load`, instructions from `valgrind`, system calls from `strace`.
The proxy has core 0 and one worker; the origin and the load have core 1. Every repetition runs the contenders in
another order, and a ratio is the median over the repetitions, so that other work on the machine affects all alike.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time

import load as open_loop
import wires as more
from contenders import (
    ADMIN,
    KIB,
    ORIGIN,
    PROXY,
    SECOND,
    Contenders,
    Wanted,
    cpu,
    entry,
    middleware,
    mwl_config,
    pinned,
    resident,
    stop,
    tree,
    until,
)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# Name, path, connections. The cases with a policy begin with `policy`.
CASES = {
    "c1": ("/1k", 1),
    "c32": ("/1k", 32),
    "c256": ("/1k", 256),
    "64k": ("/64k", 32),
    "1m": ("/1m", 16),
    "post16k": ("/post", 32),
    "policy": ("/1k", 32),
    "policy-flaky": ("/flaky", 32),
}

def failures(*names):
    return {"codes": [f"Provider.Call.Http.{name}" for name in names]}


RETRIED = failures("Unavailable", "ConnectionFailed", "ConnectionClosed")
POLICY = [
    entry("timeout", duration="PT5S"),
    entry("retry", policies=[{"match": RETRIED, "attempts": 3}]),
    entry("timeout", duration="PT1S"),
]
AUDIT = middleware(
    "finally",
    onAlways={
        "with": {
            "call": {
                "provider": "mwl:provider.call/mwl-proxy/http/v1",
                "input": "{{ {'execution': execution.id, 'type': middleware.result.type} }}",
                "with": {"upstream": "audit", "method": "POST", "path": "/post"},
            }
        }
    },
)
WAITING = middleware(
    "retry",
    onEntry={"with": {"policies": [{"match": RETRIED, "attempts": 3}]}},
    onFailure={
        "with": {
            "delay": "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
        }
    },
)


class Bench:
    """One run: its directory, its tools and its contenders."""

    def __init__(self, options):
        self.options = options
        self.run = tempfile.mkdtemp(prefix="mwl-peers-")
        target = os.path.join(ROOT, "target", "benches")
        manifest = os.path.join(HERE, "tools", "Cargo.toml")
        build = ["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", manifest]
        subprocess.run([*build, "--target-dir", target], check=True)
        self.tools = os.path.join(target, "release")
        self.peers = Contenders(self.run)

    # --- the contenders: the command that serves, with the policy or without -------------------------

    def floor(self, policy):
        return None if policy else [os.path.join(self.tools, "floor"), str(PROXY), str(ORIGIN)]

    def mwl(self, policy):
        return self.mwl_with(POLICY if policy else [], two=policy)

    def mwl_with(self, stack, two=False, routes=None, workers=None, admin={}):
        ports = [ORIGIN, SECOND] if two else [ORIGIN]
        upstreams = {
            "origin": {"endpoints": [f"http://127.0.0.1:{port}" for port in ports]},
            "audit": {"endpoints": [f"http://127.0.0.1:{SECOND}"]},
        }
        keys = {"routes": routes or []}
        if admin is not None:
            keys["admin"] = {"address": f"127.0.0.1:{ADMIN}", **admin}
        if workers:
            keys["limits"] = {"workers": workers}
        path = mwl_config(os.path.join(self.run, "mwl.json"), stack, upstreams, **keys)
        return [os.path.abspath(self.options.mwl), "run", "-c", path]

    def contenders(self):
        peers = self.peers.there("nginx", "haproxy", "envoy")
        single = self.options.mode == "deep"
        makes = {name: lambda policy, make=make: make(Wanted(policy=policy, single=single)) for name, make in peers.items()}
        all = {"floor": self.floor, **makes, "mwl": self.mwl}
        only = self.options.only
        return {name: make for name, make in all.items() if not only or name in only.split(",")}

    # --- processes -------------------------------------------------------------------------------

    def start_origin(self):
        origin = pinned(1, [os.path.join(self.tools, "origin"), str(ORIGIN), str(SECOND)])
        until(lambda: b"200" in ask_once(ORIGIN, "/1k")[:16], origin, 20)
        return origin

    def start(self, command, core=None, patience=30):
        log = open(os.path.join(self.run, "log"), "a")
        process = pinned(core, command, stdout=log, stderr=log, cwd=self.run)
        until(lambda: b" 200 " in ask_once(PROXY, "/1k")[:16], process, patience)
        return process

    # --- measurements ------------------------------------------------------------------------------

    def instructions(self, command, path="/1k"):
        """User-space instructions of a request: the difference between a short run and a longer one. `path` is one
        path, or several requests as `ask` takes them, sent in turn."""
        counted = []
        for requests in (400, 2000):
            log = os.path.join(self.run, "callgrind")
            valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}.%p"]
            process = self.start([*valgrind, *command], patience=120)
            ask(requests, path)
            stop(process)
            logs = [name for name in os.listdir(self.run) if name.startswith("callgrind.")]
            total = 0
            for name in logs:
                name = os.path.join(self.run, name)
                found = re.search(r"Collected : (\d+)", open(name).read())
                total += int(found[1]) if found else 0
                os.remove(name)
            counted.append(total)
        return (counted[1] - counted[0]) / 1600

    def calls(self, command, path="/1k"):
        """System calls of a request."""
        process = self.start(command)
        ask(400, path)
        pids = [word for pid in tree(process.pid) for word in ("-p", str(pid))]
        summary = os.path.join(self.run, "strace")
        tracer = subprocess.Popen(["strace", "-f", "-c", "-o", summary, *pids], stderr=subprocess.DEVNULL)
        time.sleep(1)
        ask(4000, path)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        stop(process)
        total = open(summary).read().strip().splitlines()[-1].split()
        return int(total[3]) / 4000

    def wrk(self, case, core="1"):
        path, connections = CASES[case]
        script = []
        if case == "post16k":
            body = 'wrk.method="POST" wrk.body=string.rep("x",16384)'
            script = ["-s", self.peers.write("post.lua", body)]
        url = f"http://127.0.0.1:{PROXY}{path}"
        command = ["taskset", "-c", core, "wrk", "-t1", f"-c{connections}", f"-d{self.options.seconds}s"]
        # Debian's build sometimes dies at its start, often on a busy machine.
        for _ in range(10):
            out = subprocess.run([*command, "--timeout", "5s", *script, url], capture_output=True, text=True).stdout
            served = re.search(r"(\d+) requests in", out)
            if served and int(served[1]):
                bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
                return int(served[1]), int(bad[1]) if bad else 0
            time.sleep(0.5)
        raise RuntimeError(f"wrk does not measure {case}: {out[-200:]}")


def ask_once(port, path):
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as stream:
            stream.sendall(request.encode())
            answer = b""
            while part := stream.recv(65536):
                answer += part
                # The origin keeps its connections.
                if b"\r\n\r\n" in answer:
                    break
            return answer
    except OSError:
        return b""


def ask(requests, wanted, connections=8):
    """Sends `requests` requests over a few kept connections, one after another on each: for one path, or for each of
    a list of paths, hosts and methods in turn."""
    wanted = [(wanted, "bench", "GET")] if isinstance(wanted, str) else wanted
    none = {"GET": "", "PUT": "Content-Length: 0\r\n"}
    heads = [
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{none[method]}\r\n".encode() for path, host, method in wanted
    ]
    streams = [socket.create_connection(("127.0.0.1", PROXY), 60) for _ in range(connections)]
    for turn in range(requests // connections):
        for stream in streams:
            stream.sendall(heads[turn % len(heads)])
        for stream in streams:
            read_answer(stream)
    for stream in streams:
        stream.close()


def read_answer(stream):
    answer = b""
    while True:
        end = answer.find(b"\r\n\r\n")
        if end >= 0:
            length = re.search(rb"(?i)content-length: (\d+)", answer[:end])
            if len(answer) >= end + 4 + int(length[1]):
                return
        part = stream.recv(65536)
        if not part:
            raise RuntimeError(f"closed after {answer[:80]!r}")
        answer += part


# --- modes -------------------------------------------------------------------------------------------


def times(bench):
    names, options, out = bench.contenders(), bench.options, []
    os.sched_setaffinity(0, {1})
    wanted = options.cases.split(",") if options.cases else list(CASES)
    origin = bench.start_origin()
    try:
        for rep in range(options.reps):
            order = list(names)
            random.Random(rep).shuffle(order)
            for name in order:
                for policy in (False, True):
                    cases = [case for case in wanted if case.startswith("policy") == policy]
                    command = names[name](policy) if cases else None
                    if not command:
                        continue
                    # If one run fails, as on a busy machine, only this repetition lacks it.
                    try:
                        for row in timed(bench, command, cases):
                            out.append({"rep": rep, "name": name, **row})
                    except (RuntimeError, OSError) as error:
                        print(f"{name}, repetition {rep + 1}: {error}", flush=True)
    finally:
        stop(origin)
    report_times(names, wanted, out)
    return out


def timed(bench, command, cases):
    process = bench.start(command, core=0)
    try:
        idle = resident(process.pid)
        bench.wrk("c32")
        for case in cases:
            before = cpu(process.pid)
            served, bad = bench.wrk(case)
            took = (cpu(process.pid) - before) / served * 1e6
            memory = resident(process.pid)
            yield {"case": case, "us": took, "served": served, "bad": bad, "memory": memory, "idle": idle}
    finally:
        stop(process)


def report_times(names, cases, out):
    def figures(name, case, member):
        return {row["rep"]: row[member] for row in out if (row["name"], row["case"]) == (name, case)}

    for case in cases:
        rows = {name: figures(name, case, "us") for name in names}
        shown = [f"{name} {statistics.median(row.values()):.1f}" for name, row in rows.items() if row]
        print(f"{case}: microseconds a request: " + ", ".join(shown))
        own = rows.get("mwl", {})
        ratios = []
        for name, row in rows.items():
            both = [own[rep] / row[rep] for rep in own if row.get(rep)]
            if both and name != "mwl":
                ratios.append(f"{name} {statistics.median(both):.2f}")
        print("    mwl / " + ", ".join(ratios))
        bad = {name: sum(figures(name, case, "bad").values()) for name in names}
        bad = [f"{name} {count}" for name, count in bad.items() if count]
        if bad:
            print("    answers that were no success: " + ", ".join(bad))
    for name in names:
        rows = [row for row in out if row["name"] == name]
        if rows:
            idle = min(row["idle"] for row in rows)
            by_case = {case: max(figures(name, case, "memory").values(), default=0) for case in cases}
            by_case = [f"{case} {most:.0f}" for case, most in by_case.items() if most]
            print(f"{name}: MiB resident: idle {idle:.0f}; after " + ", ".join(by_case))


def deep(bench):
    def every():
        for name, make in bench.contenders().items():
            for policy in (False, True):
                command = make(policy)
                if command:
                    yield name + (" with the policy" if policy else ""), command, "/1k"

    return priced(bench, every())


def prices(bench):
    def every():
        yield "no stack", bench.mwl_with([]), "/1k"
        yield "the same, without a record of executions", bench.mwl_with([], admin={"executions": 0}), "/1k"
        yield "the same, without an admin address", bench.mwl_with([], admin=None), "/1k"
        yield "Timeout over Retry over Timeout", bench.mwl_with(POLICY), "/1k"
        yield "the same, one answer in ten a 503", bench.mwl_with(POLICY), "/flaky"
        waiting = [POLICY[0], WAITING, POLICY[2]]
        yield "with the Retry-After expression", bench.mwl_with(waiting), "/1k"
        yield "with it, one answer in ten a 503", bench.mwl_with(waiting), "/flaky"
        yield "a Finally audit over the stack", bench.mwl_with([AUDIT, *POLICY]), "/1k"

    rows = priced(bench, every())
    origin = bench.start_origin()
    process = bench.start(bench.mwl_with([AUDIT, *POLICY]))
    try:
        ask(400, "/1k")
        before = seen()
        ask(4000, "/1k")
        after = seen()
    finally:
        stop(process)
        stop(origin)
    connects = (after[1] - before[1] - 1) / 4000
    print(f"the audit: {(after[0] - before[0] - 1) / 4000 - 1:.2f} audits and {connects:.4f} new connections a request")
    return rows


def priced(bench, every):
    rows = []
    origin = bench.start_origin()
    try:
        for name, command, path in every:
            row = {"name": name, "instructions": bench.instructions(command, path), "calls": bench.calls(command, path)}
            print("{name}: {instructions:.0f} instructions, {calls:.2f} system calls a request".format(**row), flush=True)
            rows.append(row)
    finally:
        stop(origin)
    return rows


def table(count):
    """`count` routes: prefixes, exact paths, hosts and methods mixed, with a policy on each."""
    routes = []
    for number in range(count):
        match = [
            {"pathPrefix": f"/prefix/{number}"},
            {"path": f"/exact/{number}/1k"},
            {"hosts": [f"h{number}.test"], "pathPrefix": "/"},
            {"methods": ["PUT"], "pathPrefix": f"/put/{number}/"},
        ][number % 4]
        routes.append({"name": f"r{number}", "match": match, "upstream": "origin", "middleware": POLICY})
    return routes


def one_of_each(count):
    """A request for a route of each kind, from the middle of the table, and one for the last route."""
    first = count // 8 * 4
    return [
        (f"/prefix/{first}/1k", "bench", "GET"),
        (f"/exact/{first + 1}/1k", "bench", "GET"),
        ("/1k", f"h{first + 2}.test", "GET"),
        (f"/put/{first + 3}/1k", "bench", "PUT"),
        ("/1k", "bench", "GET"),
    ]


def routes(bench):
    rows = []
    origin = bench.start_origin()
    try:
        for count in (10, 10_000):
            command = bench.mwl_with([], routes=table(count))
            row = {"routes": count, **loaded(bench, command)}
            row["instructions"] = bench.instructions(command, one_of_each(count))
            rows.append(row)
            print(
                "{routes} routes: {instructions:.0f} instructions a request; start {load:.2f} s (CPU {load_cpu:.2f}), "
                "{memory:.0f} MiB; reload {reload:.2f} s (CPU {reload_cpu:.2f}), at most {most:.0f} MiB".format(**row),
                flush=True,
            )
    finally:
        stop(origin)
    print(f"ratio: {rows[1]['instructions'] / rows[0]['instructions']:.3f}")
    return rows


def loaded(bench, command):
    """How long a start and a reload of a changed file take, and their peak memory."""
    begun = time.time()
    process = bench.start(command, patience=120)
    try:
        row = {"load": time.time() - begun, "load_cpu": cpu(process.pid), "memory": resident(process.pid)}
        # An unchanged file is not read again.
        with open(command[-1], "a") as file:
            file.write("\n")
        before, begun = cpu(process.pid), time.time()
        reload(ADMIN)
        row.update({"reload": time.time() - begun, "reload_cpu": cpu(process.pid) - before})
        status = open(f"/proc/{process.pid}/status").read()
        row["most"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / KIB
        return row
    finally:
        stop(process)


def reload(port):
    with socket.create_connection(("127.0.0.1", port), 120) as stream:
        stream.sendall(b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := stream.recv(65536):
            answer += part
    if b" 200 " not in answer[:16]:
        raise RuntimeError(f"the reload was refused: {answer[:300]!r}")


def workers(bench):
    """Load by CPU time. The load and the origin would need cores of their own, which a machine with two cores lacks.
    So the CPU time of a request is compared: two workers, each with its own core, can spend two seconds of CPU time
    per second, one worker can spend one."""
    rows, ratios = [], []
    origin = bench.start_origin()
    try:
        for rep in range(bench.options.reps):
            costs = {}
            for count in random.Random(rep).sample((1, 2), 2):
                try:
                    costs[count] = worked(bench, count)
                except (RuntimeError, OSError) as error:
                    print(f"{count} workers, repetition {rep + 1}: {error}", flush=True)
            rows += [{"rep": rep, "workers": count, "us": us} for count, us in costs.items()]
            if len(costs) == 2:
                ratios.append(2 * costs[1] / costs[2])
                shown = "one worker {0:.1f}, two {1:.1f} microseconds a request".format(costs[1], costs[2])
                print(f"{shown}: two serve {ratios[-1]:.2f} times as much", flush=True)
    finally:
        stop(origin)
    if ratios:
        print(f"median: two workers on two cores serve {statistics.median(ratios):.2f} times what one serves")
    return rows


def worked(bench, count):
    """Microseconds of CPU time of a request, with `count` workers and 256 connections."""
    process = bench.start(bench.mwl_with([], workers=count))
    try:
        bench.wrk("c32", core="0,1")
        before = cpu(process.pid)
        served, _ = bench.wrk("c256", core="0,1")
        return (cpu(process.pid) - before) / served * 1e6
    finally:
        stop(process)


def seen():
    """The origin's requests and connections so far."""
    requests, connections = ask_once(ORIGIN, "/seen").split(b"\r\n\r\n")[1].split()
    return int(requests), int(connections)


def connects(bench):
    rows = []
    origin = bench.start_origin()
    try:
        for name, make in bench.contenders().items():
            command = make(True)
            if not command:
                continue
            process = bench.start(command, core=0)
            bench.wrk("policy-flaky")
            before = seen()
            served, bad = bench.wrk("policy-flaky")
            after = seen()
            stop(process)
            row = {"name": name, "connects": (after[1] - before[1] - 1) / served, "well": 1 - bad / served}
            rows.append(row)
            print("{name}: {connects:.4f} upstream connections a request, {well:.4%} answered well".format(**row))
    finally:
        stop(origin)
    return rows


def start(bench):
    took = []
    origin = bench.start_origin()
    try:
        for _ in range(max(5, bench.options.reps)):
            begun = time.perf_counter()
            process = subprocess.Popen(bench.mwl(False), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while b" 200 " not in ask_once(PROXY, "/1k")[:16]:
                time.sleep(0.0005)
            took.append((time.perf_counter() - begun) * 1000)
            stop(process)
    finally:
        stop(origin)
    print(f"first answer after {statistics.median(took):.1f} ms (of {len(took)}: {min(took):.1f} to {max(took):.1f})")
    return took


def wires(bench):
    return more.wires(bench)


def load(bench):
    contenders = {name: make for name, make in bench.contenders().items() if name != "floor"}
    os.sched_setaffinity(0, {1})
    origin = bench.start_origin()
    try:
        return open_loop.measure(bench, contenders, lambda: reload(ADMIN))
    finally:
        stop(origin)


def resumed(bench):
    return more.resumed(bench)


def memory(bench):
    bench.options.policy = POLICY
    return more.memory(bench)


def every(bench):
    rows = {}
    for name, mode in MODES.items():
        if name != "all":
            print(f"# {name}", flush=True)
            bench.options.mode = name
            rows[name] = mode(bench)
    return rows


MODES = {f.__name__: f for f in (times, wires, load, resumed, deep, prices, routes, workers, connects, start, memory)}
MODES["all"] = every


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", default="times", choices=MODES)
    parser.add_argument("--mwl", default=os.path.join(ROOT, "target", "release", "mwl-proxy"))
    parser.add_argument("--only")
    parser.add_argument("--cases")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    if not os.path.exists(options.mwl):
        parser.error(f"{options.mwl} is not there: cargo build --release")
    bench = Bench(options)
    rows = MODES[options.mode](bench)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
