"""What clients, upstreams and the audit endpoint saw, and how it is compared with what the proxy says."""

import json
from collections import Counter, defaultdict
from datetime import datetime

import program

# Codes of attempts of which an upstream need not have seen the request: stopped before it was sent, or while it was.
STOPPED = ("Provider.Middleware.Timeout.Exceeded", "System.Cancelled", "Provider.Call.Http.RequestAborted", "other")
# The status and the code of an answer that the upstream broke off.
TRUNCATED, BROKEN_OFF = 598, "Proxy.ResponseTruncated"
UNSENT = "Provider.Call.Http.ConnectionFailed"


class Ledger:
    """The books of one run. The keys are requests' ids."""

    def __init__(self):
        # What clients got: id to (kind, status). The kinds: answered, broken (off), left, silent (closed without an answer).
        self.clients = {}
        # How often upstreams saw a request, and how many of these were told that nothing was done.
        self.seen, self.refused = Counter(), Counter()
        self.audits = Counter()
        # Bytes of bodies: as declared by clients, and as upstreams that answered with success read them.
        self.sent, self.read = {}, defaultdict(list)
        self.spans = 0
        self.lines, self.torn = [], 0
        # Lines whose time is not the clock's.
        self.strange = []

    def line(self, text, now):
        """A line of the access log, and the time that the proxy's clock should show, if that is known."""
        try:
            line = json.loads(text)
        except ValueError:
            self.torn += 1
            return
        self.lines.append(line)
        ended = datetime.fromisoformat(line["time"][:19] + "+00:00").timestamp() + line["duration"]
        if now is not None and abs(ended - now) > 60:
            self.strange.append((line["execution"], line["time"]))


class Report:
    """The comparisons: each is told, and each that does not hold is counted."""

    def __init__(self):
        self.wrong = 0

    def equal(self, what, one, other, note=""):
        """Two numbers that must be the same."""
        self.held(what, one == other, f"{one:g} = {other:g}" if one == other else f"{one:g}, but {other:g}", note)

    def held(self, what, holds, numbers, note=""):
        """A condition that must hold."""
        self.wrong += not holds
        print(f"{'ok   ' if holds else 'WRONG'} {what}: {numbers}{'' if holds or not note else f' ({note})'}")

    def ids(self, what, ids, note=""):
        """A list that must be empty."""
        some = ", ".join(map(str, list(ids)[:4]))
        self.held(what, not ids, f"{len(ids)}{': ' + some if some else ''}", note)


def reconcile(ledger, metrics, disturbances, resident, log):
    """Compares everything with everything; returns how many comparisons do not hold."""
    report = Report()
    lines = defaultdict(list)
    for line in ledger.lines:
        lines[line["execution"]].append(line)
    dropped = program.total(metrics, "mwl_log_records_dropped_total", log="access")
    _requests(report, ledger, metrics, lines, dropped)
    _attempts(report, ledger, metrics, lines, dropped)
    _audits(report, ledger, metrics, lines, dropped)
    _rest(report, ledger, metrics, disturbances, log)
    # The first fifth fills pools and buffers.
    early, late = max(resident[1:4]), max(resident[-3:])
    report.held("memory is flat", late < early * 1.1 + 2, f"{early:.1f} MiB early, {late:.1f} MiB late")
    return report.wrong


def _requests(report, ledger, metrics, lines, dropped):
    """Requests = statuses = lines of the log."""
    kinds = Counter(kind for kind, _ in ledger.clients.values())
    print(f"clients: {len(ledger.clients)} requests, " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))
    counted = program.total(metrics, "mwl_requests_total")
    report.equal("requests counted = lines of the access log + dropped ones", counted, len(ledger.lines) + dropped)
    report.ids("lines whose time is not the clock's", ledger.strange)
    report.equal("torn lines of the access log", ledger.torn, 0)
    report.ids("requests with two lines", [id for id, found in lines.items() if len(found) > 1])
    report.ids("lines of requests that no client sent", [id for id in lines if id not in ledger.clients])
    statuses = Counter((line["route"], str(line["status"])) for line in ledger.lines)
    differing = 0
    for (name, labels), value in metrics.items():
        if name == "mwl_requests_total":
            labels = dict(labels)
            differing += abs(value - statuses[labels["route"], labels["status"]])
    report.held(
        "statuses counted = statuses in lines", differing == dropped, f"{differing:g} differ, {dropped:g} lines were dropped"
    )
    wrong, unlogged = defaultdict(list), 0
    for id, (kind, status) in ledger.clients.items():
        line = lines.get(id)
        if not line:
            unlogged += kind in ("answered", "broken")
            continue
        told = line[0]["status"]
        if kind == "answered" and told != status:
            wrong["answered, but the log says another status"].append((id, status, told))
        if kind == "broken" and told != TRUNCATED:
            wrong["answers that the upstream broke off"].append(id)
    report.held("answers without a line", unlogged <= dropped, f"{unlogged}, {dropped:g} lines were dropped")
    report.ids("answers whose status in the log is another one", wrong["answered, but the log says another status"])
    report.ids(
        "answers that were broken off and are told as something else",
        wrong["answers that the upstream broke off"],
    )
    truncated = program.total(metrics, "mwl_responses_truncated_total")
    told = sum(line["code"] == BROKEN_OFF for line in ledger.lines)
    report.held(
        "responses truncated = lines that say so",
        told <= truncated <= told + dropped,
        f"{truncated:g}, {told}; {dropped:g} lines were dropped",
    )
    report.ids("connections closed without an answer", [id for id, (kind, _) in ledger.clients.items() if kind == "silent"])
    report.equal("requests in flight at the end", program.total(metrics, "mwl_requests_in_flight"), 0)
    report.equal("requests refused", program.total(metrics, "mwl_requests_refused_total"), 0)


def _attempts(report, ledger, metrics, lines, dropped):
    """Attempts + resends = what upstreams saw."""
    codes = Counter()
    for (name, labels), value in metrics.items():
        if name == "mwl_attempts_total" and dict(labels)["upstream"] != "audit":
            codes[dict(labels)["code"]] += value
    seen = sum(ledger.seen.values())
    unsent = codes[UNSENT]
    stopped = sum(codes[code] for code in STOPPED)
    sure = sum(codes.values()) - unsent - stopped
    resends = sum(
        value
        for (name, labels), value in metrics.items()
        if name == "mwl_stale_connection_resends_total" and dict(labels)["upstream"] != "audit"
    )
    least, most = sure + resends, sure + resends + stopped
    numbers = f"{sum(codes.values()):g} attempts ({unsent:g} never sent, {stopped:g} stopped) + {resends:g} resends; upstreams saw {seen}"
    # A request that crosses a GOAWAY or a FIN of HTTP/2 is refused; who sent it may call it closed or never sent.
    refused = sum(ledger.refused.values())
    report.held(
        "attempts + resends = what upstreams saw", least <= seen + refused and seen <= most, f"{numbers} and refused {refused}"
    )
    missing, extra, logged = [], [], 0
    for id, found in lines.items():
        attempts = [attempt for line in found for attempt in line["attempts"] if not attempt.get("cleanup")]
        logged += len(attempts)
        certain = sum(1 for a in attempts if a["code"] != UNSENT and a["code"] not in STOPPED and not a.get("interrupted"))
        possible = sum(1 for a in attempts if a["code"] in STOPPED or a.get("interrupted"))
        if ledger.seen[id] + ledger.refused[id] < certain:
            missing.append((id, found[0]["route"], ledger.seen[id], [a["code"] for a in attempts]))
        if ledger.seen[id] > certain + possible:
            extra.append((id, ledger.seen[id], [a["code"] for a in attempts]))
    report.ids(
        "requests of which an upstream saw fewer than the log tells",
        missing,
        "HTTP/2: a stream that was never written is told as ConnectionClosed",
    )
    over = sum(seen - sum(1 for code in codes if code != UNSENT) for _, seen, codes in extra)
    report.held(
        "sent more often than the log tells = resends",
        over <= resends,
        f"{over} more, {resends:g} resends; {extra[:2]}",
    )
    counted = sum(codes.values())
    report.held(
        "attempts counted = attempts in lines",
        logged == counted if not dropped else logged <= counted,
        f"{counted:g}, {logged}; {dropped:g} lines were dropped",
    )
    bodies = [id for id, sizes in ledger.read.items() if any(size != ledger.sent[id] for size in sizes)]
    report.ids("bodies that an upstream took for whole at another length", bodies)
    made = sum(attempt["attempt"] > 1 for line in ledger.lines for attempt in line["attempts"] if not attempt.get("cleanup"))
    retries, suppressed = program.total(metrics, "mwl_retries_total"), program.total(metrics, "mwl_retries_suppressed_total")
    holds = retries == made if not dropped else made <= retries
    report.held(
        "retries counted = further attempts in lines",
        holds,
        f"{retries:g}, {made}; {suppressed:g} were suppressed, {dropped:g} lines dropped",
    )


def _audits(report, ledger, metrics, lines, dropped):
    """Audits = establishments."""
    requests = program.total(metrics, "mwl_requests_total", route="audited")
    cleanups = program.total(metrics, "mwl_finally_total", route="audited")
    report.equal("audits = requests of the audited route", cleanups, requests)
    attempts = {}
    for (name, labels), value in metrics.items():
        if name == "mwl_attempts_total" and dict(labels)["upstream"] == "audit":
            attempts[dict(labels)["code"]] = value
    stopped = sum(attempts.get(code, 0) for code in STOPPED)
    resends = program.total(metrics, "mwl_stale_connection_resends_total", upstream="audit")
    sure = sum(attempts.values()) - stopped - attempts.get(UNSENT, 0)
    seen = sum(ledger.audits.values())
    report.held(
        "audits sent = what the audit endpoint saw",
        sure + resends <= seen <= sure + resends + stopped,
        f"{sure:g} (+ up to {stopped:g} stopped) + {resends:g} resends, saw {seen}",
    )
    wanted = [id for id, found in lines.items() if found[0]["route"] == "audited" and ledger.audits[id] != 1]
    report.held(
        "requests that the audit endpoint did not see once",
        len(wanted) <= attempts.get(UNSENT, 0) + stopped + resends,
        f"{len(wanted)}: {wanted[:4]}",
    )


def _rest(report, ledger, metrics, disturbances, log):
    """Spans, reloads, connections."""
    spans = {
        outcome: program.total(metrics, "mwl_trace_spans_total", outcome=outcome) for outcome in ("exported", "dropped", "failed")
    }
    requests, attempts = program.total(metrics, "mwl_requests_total"), program.total(metrics, "mwl_attempts_total")
    report.equal("spans exported, dropped and failed = requests + attempts", sum(spans.values()), requests + attempts)
    report.equal("spans exported = spans that the collector took", spans["exported"], ledger.spans)
    report.equal("spans that the collector refused, or that had no time", spans["failed"], 0)
    # The queue holds 2,048 requests: beyond it the newest are dropped, which the log tells with their number.
    told = [line["dropped"] for line in log if line["message"].startswith("Spans were dropped:")]
    report.held(
        "spans dropped while the collector was away are told",
        bool(told) == bool(spans["dropped"]) and all(number <= spans["dropped"] for number in told),
        f"{spans['dropped']:g} dropped, {len(told)} lines, the last says {told[-1] if told else 0:g}",
    )
    applied = program.total(metrics, "mwl_config_reloads_total", outcome="applied")
    report.equal(
        "reloads applied = reloads made", applied, disturbances["reload"] + disturbances["move"] + disturbances["rotation"]
    )
    report.held(
        "reloads refused",
        program.total(metrics, "mwl_config_reloads_total", outcome="refused") >= disturbances["bad reload"],
        f"{disturbances['bad reload']} bad files",
    )
    report.equal(
        "certificates shown to clients = rotations + 1", disturbances["certificates shown"], disturbances["rotation"] + 1
    )
    report.equal("upstream connections in use at the end", program.total(metrics, "mwl_upstream_connections", state="active"), 0)
