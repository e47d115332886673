"""What the corpora are made of.

`@ID` in a case's bytes becomes its name, in the field that names a request. `@IN` names the request that an attacker
would smuggle: no server may see one that the proxy has not seen as a request of its own.
"""

from typing import NamedTuple

ID = "X-Request-ID: @ID"
INNER = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: @IN\r\n\r\n"


class Case(NamedTuple):
    """One connection's bytes."""

    # The family, a hyphen and a number.
    name: str
    # What the client sends.
    raw: bytes
    # Whether the proxy has to refuse it: no server may see a whole request of it.
    refused: bool


class Corpus:
    """Numbers the cases of each family."""

    def __init__(self):
        self.cases, self.last = [], {}

    def add(self, family, raw, refused=False):
        """Adds a case: bytes, text (written as latin-1, so that every byte can be said), or what makes them of the name."""
        number = self.last[family] = self.last.get(family, 0) + 1
        name = f"{family}-{number}"
        if callable(raw):
            raw = raw(name)
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        raw = raw.replace(b"@ID", name.encode()).replace(b"@IN", f"{name}-in".encode())
        self.cases.append(Case(name, raw, refused))


def get(target="/a", *fields, method="GET", host="a.test", version="HTTP/1.1"):
    """A request without a body."""
    lines = [f"{method} {target} {version}", *([f"Host: {host}"] if host is not None else []), ID, *fields]
    return "\r\n".join(lines) + "\r\n\r\n"


def post(body, *fields, target="/a", method="POST", version="HTTP/1.1"):
    """A request with these bytes behind its head; the fields say what frames them."""
    return get(target, *fields, method=method, version=version) + body
