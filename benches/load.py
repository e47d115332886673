"""The mode `load` of peers.py: latency in an open loop, where requests come at their own times however long answers take."""

import os
import random
import statistics
import subprocess
import threading
import time
from contextlib import contextmanager

from contenders import PROXY, connects, pinned, stop, until

# Of what each proxy serves in a closed loop, by the same generator.
SHARES = (0.5, 0.8, 0.95)
CONNECTIONS = 32
# Requests a second beside other work, which no proxy needs a tenth of its time for.
BESIDE = 4000
ONE = ["taskset", "-c", "1", "h2load", "--h1", "-t1", f"-c{CONNECTIONS}", "-m1"]


def paced(bench, path, rate):
    """Latencies in microseconds at 50, 99 and 99.9%, at `rate` requests a second."""
    log = os.path.join(bench.logs, "paced")
    with open(log, "w"):
        pass
    each = max(1, round(rate / CONNECTIONS))
    command = [*ONE, f"--rps={each}", f"-D{bench.options.seconds}", f"--log-file={log}", url(path)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(log) as file:
        took = sorted(int(row[2]) for row in (line.split("\t") for line in file) if row[1] != "0")
    if len(took) < rate / 4:
        raise RuntimeError(f"{len(took)} answers at {rate:.0f} a second")
    return [took[int(len(took) * share)] for share in (0.5, 0.99, 0.999)]


def url(path):
    return f"http://127.0.0.1:{PROXY}{path}"


def limit(bench, path):
    """Answers a second in a closed loop."""
    seconds = bench.options.seconds
    said = subprocess.run([*ONE, f"-D{seconds}", url(path)], capture_output=True, text=True).stdout
    done = [line for line in said.splitlines() if line.startswith("requests:")]
    return int(done[0].split()[5]) / seconds


@contextmanager
def transfers():
    """A client that fetches a megabyte, again and again, over one connection."""
    command = ["taskset", "-c", "1", "wrk", "-t1", "-c1", "-d600s", url("/1m")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def reloads(path, again):
    """A changed file and a reload each second."""
    done, failed = threading.Event(), []

    def repeat():
        while not done.wait(1):
            with open(path, "a") as file:
                file.write("\n")
            try:
                again()
            except (RuntimeError, OSError) as error:
                failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


class Served:
    """One contender, while it serves."""

    def __init__(self, bench, command):
        self.bench, self.command = bench, command

    def __enter__(self):
        with open(os.path.join(self.bench.logs, "err"), "w") as log:
            self.process = pinned(0, self.command, stdout=subprocess.DEVNULL, stderr=log, cwd=self.bench.run)
        until(lambda: connects(PROXY), self.process, 20)
        return self

    def __exit__(self, *_):
        stop(self.process)


def latencies(bench, name, command, again):
    """Each figure's name, and the latencies."""
    for policy, path in ((False, "/1k"), (True, "/1k"), (True, "/flaky")):
        what = "one in ten fails" if path == "/flaky" else "policy" if policy else "plain"
        with Served(bench, command(policy)):
            most = limit(bench, path)
            for share in SHARES:
                yield f"{what}, {share:.0%}", paced(bench, path, most * share)
            if not policy:
                yield f"{what}, {BESIDE} a second", paced(bench, path, BESIDE)
                with transfers():
                    time.sleep(0.2)
                    yield f"beside a transfer, {BESIDE} a second", paced(bench, path, BESIDE)
    if name == "mwl":
        path = command(True)
        with Served(bench, path), reloads(path[-1], again):
            yield f"policy and a reload each second, {BESIDE} a second", paced(bench, "/1k", BESIDE)


def measure(bench, names, again):
    """Everything, for each of the contenders; `again` reloads mwl-proxy."""
    # Not where the configuration lies, which the proxy watches.
    bench.logs = os.path.join(bench.run, "logs")
    os.makedirs(bench.logs)
    rows = []
    for rep in range(bench.options.reps):
        order = list(names)
        random.Random(rep).shuffle(order)
        for name in order:
            try:
                for case, took in latencies(bench, name, names[name], again):
                    rows.append({"rep": rep, "name": name, "case": case, "latency": took})
            except (RuntimeError, OSError, IndexError) as error:
                print(f"{name}, repetition {rep + 1}: {error}", flush=True)
    report(rows)
    return rows


def report(rows):
    for case in dict.fromkeys(row["case"] for row in rows):
        shown = []
        for name in dict.fromkeys(row["name"] for row in rows):
            took = [row["latency"] for row in rows if (row["name"], row["case"]) == (name, case)]
            if took:
                shown.append(name + " " + "/".join(f"{statistics.median(column):.0f}" for column in zip(*took)))
        print(f"{case}: p50/p99/p99.9 in microseconds: " + ", ".join(shown), flush=True)
