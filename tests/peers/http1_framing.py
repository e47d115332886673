"""Requests whose length two readers might see differently: RFC 9112, sections 6 and 7, and the known attacks."""

from cases import ID, INNER, Corpus, get, post

CHUNKED = "Transfer-Encoding: chunked"
HELLO = "5\r\nhello\r\n0\r\n\r\n"
LAST = "0\r\n\r\n"


def cases():
    """The corpus."""
    corpus = Corpus()
    _plain(corpus)
    _both(corpus)
    _codings(corpus)
    _lengths(corpus)
    _chunks(corpus)
    _trailers(corpus)
    _bodies(corpus)
    _expectations(corpus)
    return corpus.cases


def _plain(corpus):
    """What every server must take."""
    for raw in (
        get(),
        get() + get("/b").replace("@ID", "@IN"),
        post("hello", "Content-Length: 5"),
        post("hello", "Content-Length: 5") + INNER,
        post(HELLO, CHUNKED),
        post(HELLO, CHUNKED) + INNER,
        post("", "Content-Length: 0") + INNER,
        post(LAST, CHUNKED) + INNER,
        post("hello", "content-LENGTH:5"),
        post("hello", "Content-Length:   5  "),
        post("hello", "Content-Length:\t5\t"),
        post(HELLO, "transfer-ENCODING:ChUnKeD") + INNER,
        post(HELLO, "Transfer-Encoding: \t chunked \t ") + INNER,
        post("x" * 70000, "Content-Length: 70000") + INNER,
        post("1" + "0" * 3 + "\r\n" + "y" * 4096 + "\r\n" + LAST, CHUNKED) + INNER,
        *(post("hello", "Content-Length: 5", method=method) + INNER for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "BREW")),
        *(post(HELLO, CHUNKED, method=method) + INNER for method in ("GET", "DELETE", "OPTIONS", "PROPFIND")),
        *(post("hello", "Content-Length: 5", method=method) + INNER for method in ("GET", "HEAD")),
        get(method="HEAD") + INNER,
    ):
        corpus.add("plain", raw)


def _both(corpus):
    """CL.TE and TE.CL: two framings in one head (RFC 9112, 6.1)."""
    for length, body in (
        (6, LAST + "G"),
        (5, LAST),
        (len(LAST + INNER), LAST + INNER),
        (3, HELLO + INNER),
        (4, "5c\r\n" + INNER + "\r\n" + LAST),
    ):
        for fields in (
            (f"Content-Length: {length}", CHUNKED),
            (CHUNKED, f"Content-Length: {length}"),
            (f"Content-Length: {length}", "Transfer-encoding: Chunked", "Content-Length: 0"),
        ):
            corpus.add("both", post(body, *fields), True)
    for method in ("GET", "HEAD", "DELETE"):
        corpus.add("both", post(LAST + INNER, "Content-Length: 5", CHUNKED, method=method), True)


def _codings(corpus):
    """TE.TE: codings that one reader knows and another one doesn't (RFC 9112, 6.1)."""
    length = f"Content-Length: {len(LAST + INNER)}"
    spellings = (
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: chunked;q=1",
        'Transfer-Encoding: "chunked"',
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding: chunked\x0b",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: \x0cchunked",
        "Transfer-Encoding: chunked\x00",
        "Transfer-Encoding: \x00chunked",
        "Transfer-Encoding: chunked\x7f",
        "Transfer-Encoding: \xa0chunked",
        "Transfer-Encoding: chunk\xe9d",
        "Transfer-Encoding: chunk",
        "Transfer-Encoding: chunked chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: x\r\n chunked",
        "Transfer-Encoding: chunked\r\n x",
        "Transfer-Encoding:\n chunked",
        "Foo: bar\nTransfer-Encoding: chunked",
        "Foo: bar\rTransfer-Encoding: chunked",
        "Foo: bar\r\n\rTransfer-Encoding: chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: deflate",
        "Transfer\x00-Encoding: chunked",
        "Transfer-Encoding\x00: chunked",
        "Transfer-Encoding\xa0: chunked",
        "Transfer-\xc4\xb0Encoding: chunked",
        "Transfer-Encoding; chunked",
        "Transfer-Encoding",
    )
    for spelling in spellings:
        corpus.add("coding", post(LAST + INNER, length, spelling), True)
    for spelling in spellings:
        corpus.add("coding-alone", post(HELLO + INNER, spelling), True)
    # Other names are other fields: the length counts, and the body holds the inner request.
    for spelling in (
        "Transfer_Encoding: chunked",
        "X-Transfer-Encoding: chunked",
        "TE: chunked",
        "Trailer: Transfer-Encoding",
        "Content-Encoding: chunked",
    ):
        corpus.add("coding-other", post(LAST + INNER, length, spelling))
    for version in (
        "HTTP/1.0",
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/2.0",
        "HTTP/11.1",
        "HTTP/1.1.1",
        "http/1.1",
        "HTTP/1,1",
        "HTTP/1.1 ",
        "HTTP /1.1",
        "HTTPS/1.1",
        "XTTP/1.1",
        "",
    ):
        corpus.add("version", post(HELLO + INNER, CHUNKED, version=version), version not in ("HTTP/1.2",))
    corpus.add("version", post("hello", "Content-Length: 5", version="HTTP/1.0") + INNER)
    corpus.add("version", post("hello", "Content-Length: 5", "Connection: keep-alive", version="HTTP/1.0") + INNER)


def _lengths(corpus):
    """Content-Length in every form (RFC 9110, 8.6; RFC 9112, 6.3)."""
    for value in (
        "", " ", "+5", "-5", "5.0", "5e0", "0x5", "05 5", "5 5", "5,", ",5", "5;", "'5'", '"5"', "5\x00", "\x005", "5\x0b",
        "\x0c5", "\xa05", "\xb2", "\xd9\xa5", "a", "5a", "99999999999999999999", "18446744073709551621", "4294967301x", "NaN",
        "5\r\n 0",
        "5\r\n5", "5\n0", "5, 6", "6, 5", "5, 5, 6", "5,-5", "1_0", "5 ;x",
    ):  # fmt: skip
        corpus.add("length", post("hello" + INNER, f"Content-Length: {value}"), True)
    # A list of equal numbers may be taken as that number; an answer to it must not differ between the two.
    for fields in (
        ("Content-Length: 5, 5",),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 005",),
        ("Content-Length: 5", "content-length: 05"),
    ):
        corpus.add("length-same", post("hello", *fields) + INNER)
    for fields in (
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 6", "Content-Length: 5"),
        ("Content-Length: 0", f"Content-Length: {len(INNER) + 5}"),
        ("Content-Length: 5", "Content-Length:"),
        ("Content-Length:", "Content-Length: 5"),
        ("Content-Length : 5",),
        ("Content-Length\t: 5",),
        (" Content-Length: 5",),
        ("Content-Length\x00: 5",),
        ("Content-Length\xa0: 5",),
        ("Content-Length",),
        ("Foo: bar\nContent-Length: 5",),
        ("Foo: bar\rContent-Length: 5",),
        ("Foo: bar\r\n Content-Length: 5",),
        ("Foo\r\n: bar", "Content-Length: 5"),
    ):
        corpus.add("length-twice", post("hello" + INNER, *fields), True)
    for other in ("Content_Length: 5", "Content-Length-X: 5", "X-Content-Length: 5", "Content Length: 5"):
        corpus.add("length-other", post("", other, "Content-Length: 0") + INNER, " L" in other)
    # CL.0 and 0.CL: what follows is a body for one reader and a request for the other.
    for method in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE"):
        corpus.add("length-zero", post(INNER, f"Content-Length: {len(INNER)}", method=method))
        corpus.add("length-zero", post(INNER, "Content-Length: 0", method=method))


def _chunks(corpus):
    """Sizes, extensions and ends of chunks (RFC 9112, 7.1)."""
    for size in (
        "0x5", "-5", "+5", "5 5", " 5", "5\x00", "\x005", "05\x0b", "5\t5", "g", "", "5_0", "1_0", "5h", "5.", "\xb5",
        "\xd9\xa5", "5,",
        "FFFFFFFFFFFFFFFF5", "10000000000000005", "100000000000000005", "fffffffffffffffb", "5 HTTP/1.1", "'5'", "5\r", "5\rx",
        "0x0", "-0",
    ):  # fmt: skip
        corpus.add("chunk-size", post(f"{size}\r\nhello\r\n0\r\n\r\n{INNER}", CHUNKED), True)
    for size in (
        "5",
        "05",
        "00000005",
        "000000000000000000005",
        "5;",
        "5;a",
        "5;a=b",
        '5;a="b"',
        "5; a = b",
        "5 ;a",
        "5\t;a",
        '5;a="b;c"',
        "5;" + "a" * 900,
    ):
        corpus.add("chunk-extension", post(f"{size}\r\nhello\r\n0\r\n\r\n{INNER}", CHUNKED))
    for body in (
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhell\r\n0\r\n\r\n",
        "5\r\nhello\r\n\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;\x00\r\nhello\r\n0\r\n\r\n",
        '5;a="\n"\r\nhello\r\n0\r\n\r\n',
        '5;a="\r\n"\r\nhello\r\n0\r\n\r\n',
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "\n5\r\nhello\r\n0\r\n\r\n",
        "0\r\nX\r\n",
        "0\r\n\rX",
        "5\r\nhello\r\n0;\n\r\n",
        "2\r\nxx\r\n2;\n48\r\n0\r\n\r\n",
        "5\r\n\r\nhello0\r\n\r\n",
        "000\r\n",
    ):
        corpus.add("chunk-line", post(body + INNER, CHUNKED), True)
    for body in (
        "0;a=b\r\n\r\n",
        "00\r\n\r\n",
        "000000000000000000\r\n\r\n",
        "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
        "1\r\na\r\n" * 300 + LAST,
    ):
        corpus.add("chunk-last", post(body + INNER, CHUNKED))


def _trailers(corpus):
    """Fields behind a chunked body (RFC 9112, 7.1.2)."""
    for trailer in (
        "X-A: b",
        "X-A:b\r\nX-C: d",
        "Content-Length: 99",
        "Transfer-Encoding: chunked",
        "Host: secret.test",
        "X-Request-ID: @IN",
        "Authorization: x",
        "Connection: close",
    ):
        corpus.add("trailer", post(f"5\r\nhello\r\n0\r\n{trailer}\r\n\r\n{INNER}", CHUNKED))
        corpus.add("trailer", post(f"5\r\nhello\r\n0\r\n{trailer}\r\n\r\n{INNER}", CHUNKED, f"Trailer: {trailer.split(':')[0]}"))
    for trailer in (
        "X A: b",
        ": b",
        "X-A : b",
        " X-A: b",
        "X-A: b\n",
        "X-A: \x00",
        "X-A",
        "X\r\nA: b",
        "X-A: b\rX-B: c",
        "GET / HTTP/1.1",
        "X-A: b\r\n c",
    ):
        corpus.add("trailer-broken", post(f"5\r\nhello\r\n0\r\n{trailer}\r\n\r\n{INNER}", CHUNKED), True)


def _bodies(corpus):
    """Messages that never become whole."""
    for raw in (
        post("hell", "Content-Length: 5"),
        post("", "Content-Length: 5"),
        post("5\r\nhell", CHUNKED),
        post("5\r\nhello\r\n", CHUNKED),
        post("5\r\nhello\r\n0", CHUNKED),
        post("5\r\nhello\r\n0\r\n", CHUNKED),
        post("5\r\nhello\r\n0\r\nX-A: b\r\n", CHUNKED),
        post("", CHUNKED),
        get()[:-2],
        get()[:-4],
        "GET /a",
        "POST",
    ):
        corpus.add("cut", raw, True)


def _expectations(corpus):
    """Expect, Upgrade and CONNECT: who decides when the body begins, or what protocol follows."""
    for value in ("100-continue", "100-Continue", "\t100-continue "):
        corpus.add("expect", post("hello", "Content-Length: 5", f"Expect: {value}") + INNER)
        corpus.add("expect", post(HELLO, CHUNKED, f"Expect: {value}") + INNER)
        corpus.add("expect", post("", "Content-Length: 5", f"Expect: {value}"), True)
    for value in ("200-ok", "100-continue, x", "x", "100", ""):
        corpus.add("expect-other", post("hello", "Content-Length: 5", f"Expect: {value}") + INNER)
    corpus.add("expect", post("hello", "Content-Length: 5", "Expect: 100-continue", "Expect: 100-continue") + INNER)
    corpus.add("expect", post("hello", "Content-Length: 5", "Expect: 100-continue", version="HTTP/1.0") + INNER)
    corpus.add("expect", get("/a", "Expect: 100-continue") + INNER)
    upgrade = "Connection: upgrade"
    settings = "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"
    for fields in (
        (upgrade, "Upgrade: h2c", settings),
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", settings),
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", settings, settings),
        ("Upgrade: h2c", settings),
        (upgrade, "Upgrade: h2c, websocket"),
        (upgrade, "Upgrade: HTTP/2.0"),
        (upgrade, "Upgrade: TLS/1.0"),
        (upgrade, "Upgrade: websocket", "Sec-WebSocket-Version: 777"),
        (upgrade, "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        (upgrade, "Upgrade:"),
        ("Connection: close, upgrade", "Upgrade: h2c", settings),
    ):
        corpus.add("upgrade", get("/a", *fields) + INNER)
        corpus.add("upgrade", post("hello", "Content-Length: 5", *fields) + INNER)
    for target, host in (("a.test:80", "a.test:80"), ("/a", "a.test"), ("http://a.test/", "a.test"), ("a.test", "a.test")):
        corpus.add("connect", get(target, method="CONNECT", host=host) + INNER, True)
    corpus.add("preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + INNER, True)
    corpus.add("preface", "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n" + INNER, True)
    corpus.add("preface", f"PRI * HTTP/1.1\r\nHost: a.test\r\n{ID}\r\n\r\n", False)
