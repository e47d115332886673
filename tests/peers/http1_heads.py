"""Requests whose target, host or fields two readers might see differently: RFC 9112, sections 2, 3 and 5."""

from cases import ID, INNER, Corpus, get, post


def cases():
    """The corpus."""
    corpus = Corpus()
    _targets(corpus)
    _hosts(corpus)
    _fields(corpus)
    _lines(corpus)
    _hops(corpus)
    return corpus.cases


def _targets(corpus):
    """Paths that a normal form makes another path, mostly the guarded /admin."""
    for target in (
        "/admin", "/admin/", "/admin/x", "/Admin", "/%61dmin", "/%61%64%6d%69%6e", "/admin%20", "/admin?x=/../a", "/administrator",
        "/a?/../admin", "/a?x=%2e%2e%2fadmin", "/a%3f/admin", "/a%23/admin", "/a%00/admin", "/%", "/%4", "/%zz", "/%u002e",
        "/a%%32e",
        "//admin", "///admin", "/a//admin", "//a.test/admin", "/a//../admin", "/admin;/x", "/admin;a=b/x", "/;/admin",
        "/;a/admin", "/a;/../admin",
        "/...", "/.../admin", "/.admin", "/a/.../b", "/a..", "/..a", "/%2e%2e%2e/admin", "/a/%2e", "/%2fadmin", "/a%2fadmin",
        "/admin%2fx",
        "/%5cadmin", "/a%5c..%5cadmin", "/%25%32%65%25%32%65/admin", "/a/%252e%252e/admin", "/%252fadmin", "/%c0%ae%c0%ae/admin",
        "/%c0%af../admin", "/%uff0e%uff0e/admin", "/a/{b}|c", '/a"b', "/a<b>c", "/a`b", "/a^b", "/a[0]", "/~a", "/a!$&'()*+,=:@-._",
        "/a?" + "b" * 3000, "/a?x=1&x=2", "/a??", "/a?", "/?", "/*", "/a?x=%0d%0aX:y", "/%0d%0aX-A:%20b", "/a%0a", "/%7f",
    ):  # fmt: skip
        corpus.add("path", get(target))
    dots = (
        "/../admin", "/a/../admin", "/./admin", "/a/./../admin", "/admin/..", "/admin/.", "/.", "/..", "/a/..", "/a/.",
        "/%2e/admin",
        "/a/%2e%2e/admin", "/a/.%2e/admin", "/a/%2e./admin", "/a/%2E%2E/admin", "/a/..%2fadmin", "/a%2f../admin", "/a%2f..%2fadmin",
        "/a/%2e%2e%2fadmin", "/.%2fadmin", "/%2e%2fadmin", "/a/..%5cadmin", "/a\\..\\admin", "/a%5c../admin", "/a/..\\admin",
        "/..%2f", "/a/..?x",
        "/a/../../admin", "/admin/../a", "//../admin", "/%2f../admin", "/a//..//admin", "/a/..%2F/admin",
    )  # fmt: skip
    for target in dots:
        corpus.add("dots", get(target), True)
    for target in (
        "/a#b", "/a#/../admin", "#", "/a?x#y", "a", "admin", "", "?", "/a b", "/a\tb", "/a\x0bb", "/a\x00", "/\x7f", "/\xe9",
        "/\xc3\xa9", "/a?\xe9", "/a\rb",
        "\\admin", "http:/a", "http:a", "http:///admin", "http://", "http:", "ftp://a.test/a", "http://a.test:x/a",
        "http://u:p@a.test/a", "http://a.test\\@b.test/", "HTTP//a",
        "http://a.test/a/../admin", "http://a.test/a#b", "*a", "a.test:80", "/a\x80",
    ):  # fmt: skip
        corpus.add("target", get(target), True)
    for target in ("/a HTTP/1.1\r\nX: y", "/smuggled HTTP/1.1\r\nHost: b.test"):
        corpus.add("target", f"GET {target} HTTP/1.1\r\nHost: a.test\r\n{ID}\r\n\r\n")
    for method in ("OPTIONS", "GET", "POST", "HEAD"):
        corpus.add("asterisk", get("*", method=method), method != "OPTIONS")


def _hosts(corpus):
    """Absolute forms and hosts: who is asked (RFC 9112, 3.2)."""
    for target in (
        "http://secret.test/a", "http://secret.test", "http://secret.test?x", "http://SECRET.test/a", "HTTP://secret.test/a",
        "http://secret.test./a",
        "http://secret.test:80/a", "http://secret.test:8080/a", "https://secret.test/a", "http://secret.test//admin",
        "http://secret.test/%61dmin", "http://secret.test:/a",
    ):  # fmt: skip
        for host in ("a.test", "secret.test"):
            corpus.add("absolute", get(target, host=host))
    for host in (
        "secret.test", "SECRET.TEST", "secret.test.", "secret.test:80", "secret.test.:80", "secret.test:8080", "secret.test:",
        "secret.test:080", "  secret.test  ",
        "a.test", "x.secret.test", "secret.tes", "127.0.0.1", "[::1]", "[::1]:80", "xn--e1a4c.test", "a_b.test", "a-.test", "1",
        "a.test:65535",
        # Odd, but in the grammar (RFC 3986, 3.2.2).
        "secret.test..", ".secret.test", "secret..test", "a.test;secret.test",
    ):  # fmt: skip
        corpus.add("host", get(host=host))
    for host in (
        "secret.test:x", "secret.test:80:80", "secret.test:99999", "a.test, secret.test", "a.test secret.test",
        "a.test/secret.test",
        "a.test@secret.test", "secret.test#", "secret.test?", "secret.test\\", "[::1", "[x]", "secret\x00.test",
        "secret.test\x00", "s\xe9cret.test", "a.test\r\n secret.test",
        "http://secret.test", "secret.test/", "<a>", "%73ecret.test x", "a\ttest", ":80",
    ):  # fmt: skip
        corpus.add("host-broken", get(host=host), True)
    for fields in (
        ("Host: a.test", "Host: secret.test"), ("Host: a.test", "Host: a.test"), ("Host: a.test", "host: secret.test"),
        ("Host: a.test", "Host:"),
        ("Host : secret.test",), (" Host: secret.test",), ("Host\x00: a.test",), ("Foo: b", " Host: secret.test"), (),
    ):  # fmt: skip
        corpus.add("host-fields", "\r\n".join(["GET /a HTTP/1.1", *fields, ID]) + "\r\n\r\n", True)
    for fields in (
        ("X-Forwarded-Host: secret.test",),
        ("Forwarded: host=secret.test",),
        ("X-Host: secret.test",),
        ("X-Original-URL: /admin",),
        ("X-Rewrite-URL: /admin",),
        ("X-HTTP-Method-Override: DELETE",),
    ):
        corpus.add("host-other", get("/a", *fields))
    for host in ("a.test", None, ""):
        corpus.add("host-old", get(host=host, version="HTTP/1.0"))


def _fields(corpus):
    """Lines that one reader takes for a field and another one for part of the field before (RFC 9112, 5)."""
    for line in (
        "X-A: b\r\n c", "X-A: b\r\n\tc", "X-A:\r\n b", "X-A: b\r\n ", " X-A: b", "\tX-A: b", "X A: b", "X-A : b", "X-A\t: b",
        ": b", "X-A", "X-A\r\n: b", "X(A): b", "X,A: b", 'X"A: b',
        "X/A: b", "X;A: b", "X=A: b", "X@A: b", "X[A]: b", "X{A}: b", "X<A>: b", "X?A: b", "X\\A: b", "X\x7fA: b", "X\x80A: b",
        "X\xe9: b", "X\x00: b", "\x00X: b", "X-A: \x00", "X-A: b\x00c",
        "X-A: b\x01", "X-A: b\x08", "X-A: b\x7f", "X-A: b\rc", "X-A: b\nc: d", "X-A: b\r\r\nY: z", "X-A: b\x0bc", "X-A: b\x0cc",
        "X-A: b\x1f",
    ):  # fmt: skip
        corpus.add("field", get("/a", line) + INNER, True)
    for line in (
        "X-A:",
        "X-A: ",
        "X-A:b",
        "X-A: \t b \t ",
        "X-A: b\tc",
        "X-A: \xe9",
        "X-A: \xff",
        "X-A: \x80",
        "X!#$%&'*+-.^_`|~A: b",
        "0: 1",
        "X_A: b",
        "X-A: " + "b" * 3000,
        "X-A: b" + "\r\nX-A: c" * 60,
    ):
        corpus.add("field-sound", get("/a", line) + INNER)
    for line in ("X-Request-ID: @IN", "x-request-id: other", "X_Request_ID: other", "X-View: GET secret.test /admin"):
        corpus.add("field-id", get("/a", line) + INNER)
    corpus.add("field-many", get("/a", *(f"X-{number}: y" for number in range(200))) + INNER, True)
    corpus.add("field-large", get("/a", "X-A: " + "b" * 66000) + INNER, True)
    corpus.add("field-large", get("/" + "a" * 17000) + INNER, True)


def _lines(corpus):
    """Ends of lines, blanks and methods (RFC 9112, 2.2 and 3)."""
    plain = get()
    for raw in (
        plain.replace("\r\n", "\n"), plain.replace("\r\n", "\r"), plain.replace("HTTP/1.1\r\n", "HTTP/1.1\n"), plain[:-2] + "\n",
        plain[:-4] + "\n\n", plain[:-4] + "\r\r\n\r\n",
        plain.replace("GET /a", "GET  /a"), plain.replace("GET /a", "GET\t/a"), plain.replace("/a HTTP", "/a  HTTP"),
        plain.replace("/a HTTP", "/a\tHTTP"), " " + plain, "\t" + plain,
        "\x00" + plain, "\xef\xbb\xbf" + plain, plain.replace("HTTP/1.1", "HTTP/1.1\x00"),
        plain.replace("HTTP/1.1", "HTTP/1.1\t"), plain.replace("GET", "GET\x00"), plain.replace("GET", "G\xc9T"),
        plain.replace("GET", ""), plain.replace("GET", "G(T"), plain.replace("GET", "GET:"), plain.replace("GET", '"GET"'),
        plain.replace("GET", "GE,T"),
        "GET /a\r\n\r\n", "GET\r\n\r\n", "GET /a HTTP/1.1 HTTP/1.1\r\nHost: a.test\r\n\r\n", "\r",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET /a HTTP/1.1\r\nHost: a.test\r\n" + ID + "\n\r\n", "GET /a HTTP/1.1\rHost: a.test\r\n" + ID + "\r\n\r\n",
        "\r\n " + plain,
    ):  # fmt: skip
        corpus.add("line", raw + INNER if raw.endswith("\r\n\r\n") else raw, True)
    for raw in (
        "\r\n" + plain,
        plain + "\r\n" + INNER,
        post("hello", "Content-Length: 5") + "\r\n" + INNER,
        plain + "\r\n\r\n" + INNER,
    ):
        corpus.add("line-empty", raw)
    for raw in ("\n" + plain, "\r\n" * 40 + plain):
        corpus.add("line-empty", raw, raw[0] == "\n")
    for method in ("get", "Get", "A", "M-SEARCH", "A" * 40, "!#$%&'*+-.^_`|~", "LIST", "PURGE", "QUERY"):
        corpus.add("method", get(method=method) + INNER)
    corpus.add("method", get(method="TRACE") + INNER)


def _hops(corpus):
    """Connection and what it names: fields that end here may not guard or frame anything behind (RFC 9110, 7.6.1)."""
    for value in (
        "close", "keep-alive", "Keep-Alive, close", "close, X-A", "X-Request-ID", "Host", "Content-Length", "Transfer-Encoding",
        "X-View", "Authorization, X-A", ", ,close", "close;q=1", '"close"', "X-A,\tX-B",
    ):  # fmt: skip
        corpus.add("hop", post("hello", "Content-Length: 5", "X-A: b", f"Connection: {value}") + INNER)
    corpus.add("hop", post("5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Connection: Transfer-Encoding") + INNER)
    for fields in (
        ("Connection: close", "Connection: keep-alive"), ("Proxy-Connection: close",), ("Keep-Alive: timeout=1",),
        ("TE: trailers",), ("TE: trailers, deflate;q=0.5",), ("Trailer: X-A",), ("Max-Forwards: 1",),
        ("Range: bytes=0-0",), ("If-Range: x", "Range: bytes=0-0,1-1"), ("Accept-Encoding: gzip;q=0",),
        ("Cookie: a=b; c=d", "Cookie: e=f"), ("Via: 1.0 x, 1.1 y",),
    ):  # fmt: skip
        corpus.add("hop-fields", get("/a", *fields) + INNER)
