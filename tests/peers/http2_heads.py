"""Requests in HTTP/2 whose head or length another server might see differently: RFC 9113, and what is said in HTTP/2 to be
misread in HTTP/1.1 behind the proxy."""

import http1_heads
import http2 as wire
from cases import Corpus
from http2_build import END, ENDED, data, fields, headers, post, start

SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"


def cases():
    """The corpus."""
    corpus = Corpus()
    _plain(corpus)
    _pseudo(corpus)
    _values(corpus)
    _connection(corpus)
    _lengths(corpus)
    _trailers(corpus)
    _targets(corpus)
    return corpus.cases


def _plain(corpus):
    """What every server must take."""
    add = lambda build: corpus.add("h2-plain", build)
    for method in ("GET", "HEAD", "POST", "PUT", "TRACE", "DELETE", "OPTIONS", "PATCH", "get", "BREW"):
        add(lambda name, method=method: start(headers(fields(name, method=method))))
    add(lambda name: post(name, b"hello"))
    add(lambda name: post(name, b"hello", ("content-length", "5")))
    add(lambda name: post(name, b"", ("content-length", "0")))
    add(lambda name: post(name, b"x" * 16000))
    add(
        lambda name: start(
            headers(fields(name, method="POST"), flags=END), data(b"he", flags=0), data(b"", flags=0), data(b"llo")
        )
    )
    add(lambda name: start(headers(fields(name, method="POST"), flags=END), data(b"hello", flags=0), data(b"")))
    add(lambda name: start(wire.frame(wire.HEADERS, ENDED | wire.PADDED, 1, b"\3" + wire.block(fields(name)) + b"\0\0\0")))
    add(lambda name: start(wire.frame(wire.HEADERS, ENDED | wire.WITH_PRIORITY, 1, b"\0\0\0\0\20" + wire.block(fields(name)))))
    add(
        lambda name: start(
            headers(fields(name, method="POST"), flags=END),
            wire.frame(wire.DATA, wire.END_STREAM | wire.PADDED, 1, b"\2hello\0\0"),
        )
    )
    add(lambda name: start(headers(fields(name)), headers(fields(f"{name}-in"), 3), headers(fields(f"{name}-in"), 9)))
    add(lambda name: start(headers(fields(name, ("cookie", "a=b"), ("cookie", "c=d"), ("cookie", "e=f")))))
    add(lambda name: start(headers(fields(name, ("te", "trailers")))))
    add(lambda name: start(headers(fields(name, path="*", method="OPTIONS"))))
    add(lambda name: start(headers(fields(name, ("x-a", "\xe9\xff")))))
    add(lambda name: start(headers(fields(name, ("x-a", "")))))
    add(lambda name: start(headers(fields(name, ("host", "a.test")))))
    add(lambda name: start(headers(fields(name, ("host", "a.test"), authority=None))))
    add(lambda name: start(headers(fields(name, method="POST"), flags=END), data(b"hello", flags=0), headers([("x-a", "b")])))
    add(lambda name: post(name, b"hello", ("expect", "100-continue")))
    for size in (1, 7, 40):
        add(lambda name, size=size: start(*_split(wire.block(fields(name)), size)))


def _split(block, size, stream=1, flags=wire.END_STREAM):
    """A block in a HEADERS frame and CONTINUATION frames of one size."""
    parts = [block[at : at + size] for at in range(0, len(block), size)]
    for at, part in enumerate(parts):
        last = wire.END_HEADERS if at == len(parts) - 1 else 0
        yield wire.frame(wire.CONTINUATION if at else wire.HEADERS, last | (0 if at else flags), stream, part)


def _pseudo(corpus):
    """Pseudo-headers (RFC 9113, 8.3)."""
    for pseudo in (
        {"method": None}, {"scheme": None}, {"path": None}, {"path": ""}, {"method": ""}, {"scheme": ""}, {"path": "a"},
        {"path": "*"}, {"path": "?x"},
        {"path": "http://secret.test/admin"}, {"status": "200"}, {"unknown": "x"}, {"": "x"}, {"Method": "GET"},
        {"protocol": "websocket"}, {"authority": None}, {"authority": ""},
        {"authority": "a.test, secret.test"}, {"authority": "u@a.test"}, {"authority": "u:p@secret.test"},
        {"authority": "a.test/admin"}, {"authority": "a.test:x"}, {"authority": "a test"},
        {"authority": "a.test#"}, {"authority": "a.test?x"}, {"authority": "http://a.test"}, {"scheme": "ftp"},
        {"scheme": "http://a.test/admin?"}, {"scheme": "ht tp"}, {"method": "G T"}, {"method": "GET /admin"},
        {"method": "CONNECT"}, {"method": "CONNECT", "scheme": None, "path": None, "authority": "a.test:80"},
        {"method": "CONNECT", "protocol": "websocket"}, {"path": "/a b"}, {"path": "/a\tb"}, {"path": "/a#b"},
        {"path": "/\xe9"}, {"path": "/a?\xc3\xa9"}, {"path": "/\x7f"}, {"method": "G\xc9T"},
    ):  # fmt: skip
        corpus.add("h2-pseudo", lambda name, pseudo=pseudo: start(headers(fields(name, **pseudo))), True)
    for more in (
        [(":path", "/admin")],
        [(":method", "POST")],
        [(":authority", "secret.test")],
        [(":scheme", "https")],
        [(":status", "200")],
        [("", "x")],
    ):
        corpus.add("h2-pseudo", lambda name, more=more: start(headers([*more, *fields(name)])), True)
        corpus.add("h2-pseudo", lambda name, more=more: start(headers(fields(name, *more))), True)
    # The host of the request is `:authority`; a `host` that says another one is a lie to whoever reads it.
    for value in ("secret.test", "a.test, secret.test", "a.test:81", "", "secret.test."):
        corpus.add("h2-host", lambda name, value=value: start(headers(fields(name, ("host", value)))), True)
    corpus.add("h2-host", lambda name: start(headers(fields(name, ("host", "a.test"), ("host", "secret.test")))), True)
    corpus.add(
        "h2-host", lambda name: start(headers(fields(name, ("host", "a.test"), ("host", "secret.test"), authority=None))), True
    )


def _values(corpus):
    """Bytes that end a line or a word in HTTP/1.1 (RFC 9113, 8.2.1 and 10.3)."""
    for value in (
        "x\r\nX-B: c",
        "x\nX-B: c",
        "x\rX-B: c",
        "x\0y",
        "\0",
        "\r\n",
        "x\r\n\r\n" + SMUGGLED,
        "x\n\n" + SMUGGLED,
        " x",
        "x ",
        "\tx",
        "x\t",
        "x\x01",
        "x\x7f",
    ):
        sound = value in (" x", "x ", "\tx", "x\t")
        corpus.add("h2-value", lambda name, value=value: start(headers(fields(name, ("x-a", value)))), not sound)
        if not sound:
            for key in ("path", "method", "authority", "scheme"):
                corpus.add(
                    "h2-value",
                    lambda name, key=key, value=value: start(
                        headers(fields(name, **{key: {"path": "/a"}.get(key, "GET") + value}))
                    ),
                    True,
                )
    for bad in (
        "X-A",
        "x a",
        "x\r\na",
        "x\na",
        "x\0a",
        "x:a",
        "x-a: b\r\nx-c",
        " x",
        "x ",
        "",
        ":",
        "x\x7f",
        "x\xe9",
        "x(a",
        "x\r\n\r\nGET /smuggled HTTP/1.1\r\nHost",
    ):
        corpus.add("h2-name", lambda name, bad=bad: start(headers(fields(name, (bad, "b")))), True)
    for crumb in ("a=b\r\nX-B: c", "a=b\0", "a=b\n"):
        corpus.add("h2-value", lambda name, crumb=crumb: start(headers(fields(name, ("cookie", "x=y"), ("cookie", crumb)))), True)


def _connection(corpus):
    """Fields of HTTP/1.1's connections (RFC 9113, 8.2.2)."""
    for one in (
        ("connection", "close"), ("connection", "x-request-id"), ("connection", ""), ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"), ("transfer-encoding", "chunked"), ("transfer-encoding", ""),
        ("transfer-encoding", "identity"), ("Transfer-Encoding", "chunked"), ("upgrade", "h2c"), ("upgrade", "websocket"),
        ("te", "gzip"), ("te", "trailers, gzip"), ("te", "chunked"), ("transfer-encoding ", "chunked"),
    ):  # fmt: skip
        corpus.add("h2-connection", lambda name, one=one: start(headers(fields(name, one))), True)
        corpus.add("h2-connection", lambda name, one=one: post(name, f"0\r\n\r\n{SMUGGLED}".encode(), one), True)
    for one in (
        ("http2-settings", "AAMAAABk"),
        ("transfer_encoding", "chunked"),
        ("x-transfer-encoding", "chunked"),
        ("trailer", "x-a"),
    ):
        corpus.add("h2-connection-other", lambda name, one=one: post(name, f"0\r\n\r\n{SMUGGLED}".encode(), one))


def _lengths(corpus):
    """A content-length is to be the sum of the DATA frames (RFC 9113, 8.1.1)."""
    smuggled = SMUGGLED.encode()
    # By the time that the excess comes, the message is through to a server that reads HTTP/1.1.
    corpus.add("h2-length-late", lambda name: post(name, b"hello", ("content-length", "0")))
    for value in ("4", "6", "+5", "-5", "5,6", "0x5", "", " ", "5 5", "5\0", "18446744073709551621", "5.0", "a", "1_0"):
        corpus.add("h2-length", lambda name, value=value: post(name, b"hello", ("content-length", value)), True)
    for value in ("4", "1000"):
        corpus.add("h2-length", lambda name, value=value: post(name, b"hello" + smuggled, ("content-length", value)), True)
        corpus.add(
            "h2-length",
            lambda name, value=value: start(
                headers(fields(name, ("content-length", value), method="POST"), flags=END),
                data(b"hel", flags=0),
                data(b"lo" + smuggled),
            ),
            True,
        )
    corpus.add("h2-length", lambda name: post(name, b"hello", ("content-length", "5"), ("content-length", "6")), True)
    corpus.add("h2-length", lambda name: start(headers(fields(name, ("content-length", "5"), method="POST"))), True)
    corpus.add("h2-length", lambda name: start(headers(fields(name, ("content-length", "5")))), True)
    corpus.add(
        "h2-length",
        lambda name: start(
            headers(fields(name, ("content-length", "5"), method="POST"), flags=END),
            data(b"hell", flags=0),
            headers([("x-a", "b")]),
        ),
        True,
    )
    corpus.add(
        "h2-length",
        lambda name: start(
            headers(fields(name, ("content-length", "5"), method="POST"), flags=END),
            wire.frame(wire.DATA, wire.END_STREAM | wire.PADDED, 1, b"\2hel\0\0"),
        ),
        True,
    )
    for same in (["5", "5"], ["5, 5"], ["005"]):
        corpus.add("h2-length-same", lambda name, same=same: post(name, b"hello", *(("content-length", value) for value in same)))
    for method in ("GET", "HEAD", "DELETE", "OPTIONS"):
        corpus.add(
            "h2-length-body",
            lambda name, method=method: start(
                headers(fields(name, ("content-length", str(len(smuggled))), method=method), flags=END), data(smuggled)
            ),
        )
        corpus.add(
            "h2-length-body", lambda name, method=method: start(headers(fields(name, method=method), flags=END), data(smuggled))
        )


def _trailers(corpus):
    """Fields behind the body (RFC 9113, 8.1)."""

    def send(name, trailers, flags=ENDED, more=()):
        return start(
            headers(fields(name, *more, method="POST"), flags=END), data(b"hello", flags=0), headers(trailers, flags=flags)
        )

    for trailer in (
        [("content-length", "99")],
        [("transfer-encoding", "chunked")],
        [("host", "secret.test")],
        [("x-request-id", "other")],
        [("authorization", "x")],
        [("connection", "close")],
        [("x-a", "b")] * 20,
    ):
        refused = trailer[0][0] in ("transfer-encoding", "connection")
        corpus.add("h2-trailer", lambda name, trailer=trailer: send(name, trailer), refused)
        corpus.add("h2-trailer", lambda name, trailer=trailer: send(name, trailer, more=[("trailer", trailer[0][0])]), refused)
    for trailer in (
        [(":path", "/admin")],
        [(":status", "200")],
        [("X-A", "b")],
        [("x-a", "b\r\nc: d")],
        [("x-a", "\0")],
        [("x\r\na", "b")],
        [("", "b")],
        [("x a", "b")],
    ):
        corpus.add("h2-trailer", lambda name, trailer=trailer: send(name, trailer), True)
    corpus.add("h2-trailer", lambda name: send(name, [("x-a", "b")], flags=END), True)
    corpus.add("h2-trailer", lambda name: send(name, [("x-a", "b")], flags=END) + data(b"more"), True)
    corpus.add("h2-trailer", lambda name: send(name, [("x-a", "b" * 70000)][:1]), True)


def _targets(corpus):
    """The targets and hosts of HTTP/1.1's corpus, in `:path` and `:authority`."""
    for case in http1_heads.cases():
        family = case.name.rsplit("-", 1)[0]
        line, _, rest = case.raw.decode("latin-1").partition("\r\n")
        if family in ("path", "dots"):
            path = line[len("GET ") : -len(" HTTP/1.1")]
            corpus.add(f"h2-{family}", lambda name, path=path: start(headers(fields(name, path=path))), case.refused)
        if family in ("host", "host-broken"):
            host = rest.partition("\r\nX-Request-ID")[0][len("Host: ") :]
            refused = case.refused or host != host.strip()
            corpus.add(f"h2-{family}", lambda name, host=host: start(headers(fields(name, authority=host))), refused)
