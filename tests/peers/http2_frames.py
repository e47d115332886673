"""Sequences of HTTP/2 frames that are malformed, come in the wrong order or end too early: RFC 9113 and RFC 7541."""

import http2 as wire
from cases import Corpus
from http2_build import END, ENDED, SETTINGS, data, fields, headers, reset, start


def cases():
    """The corpus."""
    corpus = Corpus()
    _order(corpus)
    _frames(corpus)
    _compression(corpus)
    _cuts(corpus)
    return corpus.cases


def _order(corpus):
    """Frames in an order that the states of a stream do not allow (RFC 9113, 5.1 and 6.10)."""
    ping = wire.frame(wire.PING, payload=b"12345678")
    block = lambda name: wire.block(fields(name))
    unended = lambda name: wire.frame(wire.HEADERS, wire.END_STREAM, 1, block(name)[:20])
    rest = lambda name, stream=1: wire.frame(wire.CONTINUATION, wire.END_HEADERS, stream, block(name)[20:])
    whole = lambda name: headers(fields(name))
    for build in (
        lambda name: unended(name) + ping + rest(name),
        lambda name: unended(name) + data(b"x") + rest(name),
        lambda name: unended(name) + headers(fields(name), 3) + rest(name),
        lambda name: unended(name) + rest(name, 3),
        lambda name: unended(name) + reset(8) + rest(name),
        lambda name: unended(name) + wire.frame(wire.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") + rest(name),
        lambda name: unended(name) + wire.frame(77, 0, 1, b"x") + rest(name),
        lambda name: unended(name) + wire.frame(wire.SETTINGS) + rest(name),
        lambda name: rest(name) + whole(name),
        lambda name: wire.frame(wire.CONTINUATION, wire.END_HEADERS, 1, block(name)),
        lambda name: data(b"hello") + whole(name),
        lambda name: data(b"hello", 0) + whole(name),
        lambda name: headers(fields(name), 0),
        lambda name: headers(fields(name), 2),
        lambda name: headers(fields(name), 4),
        lambda name: reset(8) + whole(name),
        lambda name: wire.frame(wire.WINDOW_UPDATE, 0, 1, b"\0\0\0\1") + whole(name),
        lambda name: wire.frame(wire.PUSH_PROMISE, wire.END_HEADERS, 1, b"\0\0\0\2" + block(name)),
        lambda name: wire.frame(wire.RST_STREAM, 0, 0, b"\0\0\0\x08") + whole(name),
    ):
        corpus.add("h2-order", lambda name, build=build: start(build(name)), True)
    for build in (
        lambda name: whole(name) + data(b"late"),
        lambda name: whole(name) + headers(fields(f"{name}-late")),
        lambda name: headers(fields(name), 5) + headers(fields(f"{name}-late"), 3),
        lambda name: headers(fields(name), 5) + headers(fields(f"{name}-late"), 5),
        lambda name: whole(name) + rest(name),
        lambda name: whole(name) + wire.frame(wire.GOAWAY, 0, 0, bytes(8)) + headers(fields(f"{name}-in"), 3),
        lambda name: whole(name) + reset(8) + data(b"late"),
        lambda name: wire.frame(wire.PRIORITY, 0, 3, b"\0\0\0\0\1") + whole(name),
        lambda name: wire.frame(99, 255, 1, b"x" * 100) + whole(name),
        lambda name: wire.frame(wire.GOAWAY, 0, 0, bytes(8)) + whole(name),
        lambda name: ping + whole(name),
    ):
        corpus.add("h2-order-late", lambda name, build=build: start(build(name)))


def _frames(corpus):
    """Frames that are malformed (RFC 9113, 4.2 and 6)."""
    whole = lambda name: headers(fields(name))
    setting = lambda key, value: key.to_bytes(2, "big") + value.to_bytes(4, "big")
    for bad in (
        wire.frame(wire.SETTINGS, 0, 1), wire.frame(wire.SETTINGS, 0, 0, b"12345"),
        wire.frame(wire.SETTINGS, wire.ACK, 0, b"123456"), wire.frame(wire.SETTINGS, 0, 0, setting(2, 2)),
        wire.frame(wire.SETTINGS, 0, 0, setting(4, 2**31)), wire.frame(wire.SETTINGS, 0, 0, setting(5, 16383)),
        wire.frame(wire.SETTINGS, 0, 0, setting(5, 2**24)), wire.frame(wire.PING, 0, 0, b"1234567"),
        wire.frame(wire.PING, 0, 1, b"12345678"), wire.frame(wire.WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
        wire.frame(wire.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), wire.frame(wire.WINDOW_UPDATE, 0, 0, b"123"),
        wire.frame(wire.GOAWAY, 0, 1, bytes(8)), wire.frame(wire.GOAWAY, 0, 0, bytes(7)),
        wire.frame(wire.RST_STREAM, 0, 1, b"123"), wire.frame(wire.PRIORITY, 0, 0, bytes(5)), b"\xff\xff\xff\4\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ):  # fmt: skip
        corpus.add("h2-frame", lambda name, bad=bad: start(bad, whole(name)), True)
    for build in (
        lambda name: wire.frame(wire.HEADERS, ENDED | wire.PADDED, 1, b"\xff" + wire.block(fields(name))),
        lambda name: wire.frame(wire.HEADERS, ENDED | wire.PADDED, 1, b""),
        lambda name: wire.frame(wire.HEADERS, ENDED | wire.WITH_PRIORITY, 1, b"\0\0\0"),
        lambda name: wire.frame(wire.HEADERS, ENDED, 1, b""),
        lambda name: (
            headers(fields(name, method="POST"), flags=END)
            + wire.frame(wire.DATA, wire.END_STREAM | wire.PADDED, 1, b"\xffhello")
        ),
        lambda name: (
            headers(fields(name, method="POST"), flags=END) + wire.frame(wire.DATA, wire.END_STREAM | wire.PADDED, 1, b"")
        ),
        lambda name: headers(fields(name, method="POST"), flags=END) + data(b"x" * 20000),
        lambda name: headers(fields(name, ("x-a", "b" * 70000))),
        lambda name: headers(fields(name, *((f"x-{number}", "y") for number in range(300)))),
    ):
        corpus.add("h2-frame", lambda name, build=build: start(build(name)), True)
    # A stream that depends on itself. RFC 7540 had it refused; RFC 9113 (5.3) lets everybody pass over priorities.
    itself = b"\0\0\0\1\0"
    corpus.add(
        "h2-frame",
        lambda name: start(wire.frame(wire.HEADERS, ENDED | wire.WITH_PRIORITY, 1, itself + wire.block(fields(name)))),
    )
    corpus.add("h2-preface", lambda name: wire.PREFACE + whole(name), True)
    corpus.add("h2-preface", lambda name: wire.PREFACE[:-2] + b"XX" + SETTINGS + whole(name), True)
    corpus.add("h2-preface", lambda name: wire.PREFACE + wire.PREFACE + SETTINGS + whole(name), True)
    corpus.add(
        "h2-preface", lambda name: wire.PREFACE + wire.frame(wire.PING, payload=b"12345678") + SETTINGS + whole(name), True
    )


def _compression(corpus):
    """Blocks that HPACK does not allow (RFC 7541)."""
    for block in (
        b"\x80",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xbe",
        b"\x3f\xff\xff\x7f",
        b"\0\x81\xff\1x",
        b"\0\x85\xff\xff\xff\xff\xff\1x",
        b"\0\5x",
        b"\x7f\xff",
        b"\0\x81\x00\1x",
    ):
        corpus.add(
            "h2-block",
            lambda name, block=block: start(wire.frame(wire.HEADERS, ENDED, 1, wire.block(fields(name)) + block)),
            True,
        )
    corpus.add("h2-block", lambda name: start(wire.frame(wire.HEADERS, ENDED, 1, wire.block(fields(name)) + b"\x20")), True)
    corpus.add("h2-block-sound", lambda name: start(wire.frame(wire.HEADERS, ENDED, 1, b"\x20" + wire.block(fields(name)))))


def _cuts(corpus):
    """Messages that never become whole: only END_STREAM ends one (RFC 9113, 8.1).

    One whose `content-length` has come is whole to a server that reads HTTP/1.1.
    """
    for more in ((), (("content-length", "5"),), (("content-length", "9"),)):
        for last in (
            reset(0),
            reset(2),
            reset(5),
            reset(8),
            reset(13),
            b"",
            wire.frame(wire.GOAWAY, 0, 0, bytes(8)),
            data(b"", flags=0),
        ):
            refused = more != (("content-length", "5"),)
            corpus.add(
                "h2-cut",
                lambda name, more=more, last=last: start(
                    headers(fields(name, *more, method="POST"), flags=END), data(b"hello", flags=0), last
                ),
                refused,
            )
    for last in (reset(0), reset(8), b""):
        corpus.add("h2-cut", lambda name, last=last: start(headers(fields(name, method="POST"), flags=END), last), True)
    corpus.add("h2-cut", lambda name: start(wire.frame(wire.HEADERS, wire.END_STREAM, 1, wire.block(fields(name)))), True)
