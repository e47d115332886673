"""Compares what two sides say about the same connection: the proxy's access log and a server's log."""

import json
import re
from collections import Counter, defaultdict

# The ids that fronts make (HAProxy: random UUIDs; NGINX: 32 digits), and those that the proxy makes.
FRONT_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f-]{17}|[0-9a-f]{32}")
UUID7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f-]{17}")


def proxy_lines(text):
    """The access log's lines of requests that a route took. Refused ones have lines, too, but reach no server."""
    lines = [json.loads(line) for line in text.splitlines() if line]
    return [line for line in lines if line["route"]]


def name_of(host):
    """A host for comparing: no case, no port, no trailing dot."""
    host = host.lower() if host.endswith("]") else host.lower().rsplit(":", 1)[0]
    return host.removesuffix(".")


def under(path, prefix):
    """Whether a path is a prefix's or beneath it."""
    return path == prefix or path.startswith(prefix + "/")


def routes_of(line):
    """The routes that a request may have taken, by a server's own normal form of path and host."""
    if name_of(line["host"]) == "secret.test":
        return {"secret"}
    path = line.get("path") or path_of(line["target"])
    # To some servers a segment's parameters are part of its name, to others not. The proxy may say either.
    bare = re.sub("/+", "/", re.sub(";[^/]*", "", path))
    return {"admin" if under(one, "/admin") else "rest" for one in (path, bare)}


def path_of(target):
    """A target's path as it was sent: without a query, and without the scheme and host of an absolute form."""
    target = re.sub("^https?://[^/?]*", "", target, flags=re.IGNORECASE) or "/"
    return target.partition("?")[0] or "/"


def by_id(said):
    """The proxy's lines by the ids of their requests."""
    lines = defaultdict(list)
    for line in said:
        lines[line["execution"]].append(line)
    return dict(lines)


def back(cases, said, seen, resends):
    """The disagreements between the proxy and a server behind it: (case, text)."""
    proxy, server, refused = by_id(said), defaultdict(list), 0
    for line in seen:
        # One that reads `_` as `-` joins the values of two fields.
        id = line["id"].partition(",")[0]
        if 100 <= line["status"] < 400:
            server[id].append(line)
        elif not id and line["status"] in (400, 414, 431, 501, 505):
            refused += 1
    yield from _requests(proxy, server)
    sent = sum(len(line["attempts"]) for line in said)
    unseen = sent + resends - sum(map(len, server.values()))
    if refused > unseen:
        yield "-", f"the server refused {refused} requests, but only {unseen} of those that were sent are not in its log"
    strict = {case.name for case in cases if case.refused}
    for id, lines in server.items():
        if case_of(id) in strict:
            length = lines[0]["length"] or 0
            yield id, f"had to be refused, and the server saw {lines[0]['method']} {lines[0]['target']}, {length} bytes"


def _requests(proxy, server):
    """Requests that only one side saw, and what differs in those that both saw."""
    for id, lines in server.items():
        attempts = sum(len(line["attempts"]) for line in proxy.get(id, ()))
        if not attempts:
            yield id or "-", f"the server saw a request that the proxy did not send: {lines[0]['method']} {lines[0]['target']}"
        elif len(lines) > attempts:
            yield id, f"the proxy sent {attempts} requests, the server saw {len(lines)}"
        for of_server, of_proxy in zip(lines, proxy.get(id, ())):
            for text in _differences(of_proxy, of_server):
                yield id, text
    for id, lines in proxy.items():
        answered = sum(1 for line in lines for attempt in line["attempts"] if (attempt["status"] or 500) < 400)
        saw = len(server.get(id, ()))
        # Go answers `OPTIONS *` before its handler, which logs.
        if answered > saw and lines[0]["path"] != "*":
            yield id, f"the server answered {answered} requests with success, and saw {saw}"


def _differences(said, saw):
    """What differs in one request."""
    # gunicorn makes every method upper case.
    if said["method"] != saw["method"] and not ("folded" in saw and said["method"].upper() == saw["method"]):
        yield f"method: proxy {said['method']}, server {saw['method']}"
    path = path_of(saw["target"])
    if said["path"] != path and saw["target"] != "*":
        yield f"path: proxy {said['path']}, server {path}"
    length = int(saw["length"] or 0)
    if said["bytesIn"] != length and said["status"] < 499:
        yield f"body: proxy {said['bytesIn']} bytes, server {length}"
    method, _, rest = saw["view"].partition(" ")
    host, _, path = rest.partition(" ")
    # A request of HTTP/1.0 may have no host; it gets the endpoint's.
    if host and name_of(host) != name_of(saw.get("name") or saw["host"]):
        yield f"host: proxy {host}, server {saw.get('name') or saw['host']}"
    if said["route"] not in routes_of(saw):
        routes = " or ".join(sorted(routes_of(saw)))
        yield f"route: proxy {said['route']}, but to the server {saw['host']} {saw.get('path') or saw['target']} is {routes}"


def front(cases, sent, said):
    """The disagreements between a front and the proxy behind it."""
    strict = {case.name for case in cases if case.refused}
    # Of a request that says `Connection: X-Request-ID` the proxy takes the front's id away.
    hidden = {case.name for case in cases if b"Connection: X-Request-ID" in case.raw}
    fronts = {line["id"]: line for line in sent if line["sent"]}
    proxy, nameless = by_id(said), 0
    for id, lines in proxy.items():
        if of_front := fronts.get(id):
            case = of_front["case"] or id
            if len(lines) > 1:
                yield case, f"the front sent one request, the proxy saw {len(lines)}"
            for text in _changes(of_front, lines[0], case in strict):
                yield case, text
        elif UUID7.fullmatch(id) and nameless < len(hidden):
            nameless += 1
        # Nobody else can have made a front's id: HAProxy does not log every request whose client has left.
        elif not FRONT_ID.fullmatch(id):
            yield id, f"the proxy saw a request that the front did not send: {lines[0]['method']} {lines[0]['path']}"
    for id, line in fronts.items():
        if 200 <= line["status"] < 400 and id not in proxy and line["case"] not in hidden:
            yield line["case"], f"the front got {line['status']} for a request that the proxy did not see"


def _changes(sent, said, malformed):
    """What differs between what a front sent and what the proxy saw."""
    if said["method"] != sent["method"]:
        yield f"method: front {sent['method']}, proxy {said['method']}"
    if said["path"] != path_of(sent["target"]) and said["path"] != "*":
        yield f"path: front {sent['target']}, proxy {said['path']}"
    # Of a malformed request the front may have made a sound one.
    if sent["length"] and not malformed and said["status"] < 400 and int(sent["length"]) != said["bytesIn"]:
        yield f"body: front {sent['length']} bytes, proxy {said['bytesIn']}"


def case_of(id):
    """The case that an id belongs to."""
    return id.removesuffix("-in").removesuffix("-late")


def counts(cases, lines, key="id"):
    """How many requests of each family were seen."""
    families = {case.name: case.name.rsplit("-", 1)[0] for case in cases}
    return Counter(family for line in lines if (family := families.get(case_of(line[key]))))
