"""The parts of a connection in HTTP/2, from which the cases are made."""

import http2 as wire

END, ENDED = wire.END_HEADERS, wire.END_HEADERS | wire.END_STREAM
SETTINGS = wire.frame(wire.SETTINGS)


def start(*frames, settings=SETTINGS):
    """A connection that begins as it should."""
    return wire.PREFACE + settings + b"".join(frames)


def fields(name, *more, **pseudo):
    """The fields of a request; a keyword gives a pseudo-header another value, None takes it away."""
    values = {"method": "GET", "scheme": "http", "authority": "a.test", "path": "/a", **pseudo}
    return [(f":{key}", value) for key, value in values.items() if value is not None] + [("x-request-id", name), *more]


def headers(listed, stream=1, flags=ENDED):
    """A HEADERS frame."""
    return wire.frame(wire.HEADERS, flags, stream, wire.block(listed))


def data(payload, stream=1, flags=wire.END_STREAM):
    """A DATA frame."""
    return wire.frame(wire.DATA, flags, stream, payload)


def post(name, body, *more, **pseudo):
    """A request with a body in one frame."""
    return start(headers(fields(name, *more, method="POST", **pseudo), flags=END), data(body))


def reset(code, stream=1):
    """An RST_STREAM frame."""
    return wire.frame(wire.RST_STREAM, 0, stream, code.to_bytes(4, "big"))
