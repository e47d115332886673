"""A client and an origin that speak HTTP/2, for the benches: every request, and every answer, is the same few bytes.

Fields are sent as common clients send them: the first time with their text, afterwards as places in the table. Nothing of
what the proxy sends is decoded except frames' heads, and the first byte of an answer's fields, which must mean 200.
"""

import socket

import contenders

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
ACK = END_STREAM = 1
END_HEADERS = 4
# The `:status: 200` of the static table.
OK = 0x88
# GET, http, and the authority, path and user agent, which the second request names by their places in the table.
FIRST = b"\x82\x86\x41\x05bench\x44\x03/1k\x7a\x05bench"
NEXT = b"\x82\x86\xc0\xbf\xbe"
# 200, and the server, type and length.
FIRST_ANSWER = b"\x88\x76\x06origin\x5f\x0atext/plain\x5c\x041024"
NEXT_ANSWER = b"\x88\xc0\xbf\xbe"
BODY = b"x" * 1024


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2 (RFC 9113 §4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# The window of the connection as large as it may be: nothing here waits for one.
OPENING = frame(SETTINGS, 0, 0) + frame(8, 0, 0, (2**31 - 1 - 65535).to_bytes(4, "big"))


class Wire:
    """One end of a connection."""

    def __init__(self, stream, preface=0):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream, self.read, self.skip = stream, bytearray(), preface

    def frames(self):
        """The frames that one read brings; None at the end."""
        part = self.stream.recv(1 << 18)
        if not part:
            return None
        self.read += part
        found = []
        if len(self.read) < self.skip:
            return found
        at, self.skip = self.skip, 0
        while len(self.read) >= at + 9:
            end = at + 9 + int.from_bytes(self.read[at : at + 3], "big")
            if len(self.read) < end:
                break
            kind, flags, payload = self.read[at + 3], self.read[at + 4], bytes(self.read[at + 9 : end])
            found.append((kind, flags, int.from_bytes(self.read[at + 5 : at + 9], "big"), payload))
            at = end
        del self.read[:at]
        return [each for each in found if not self.answered(*each)]

    def answered(self, kind, flags, stream, payload):
        """Answers what only concerns the connection."""
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.stream.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        return stream == 0 and kind != GOAWAY


class Client:
    """Sends requests, a batch at a time, over one connection."""

    def __init__(self, port, connect=None):
        connect = connect or (lambda port: socket.create_connection(("127.0.0.1", port), 120))
        self.wire = Wire(connect(port))
        self.wire.stream.sendall(PREFACE + OPENING)
        self.stream, self.block = 1, FIRST

    def close(self):
        self.wire.stream.close()

    def ask(self, times, batch=1, body=b""):
        for _ in range(times // batch):
            requests = b""
            for _ in range(batch):
                requests += frame(HEADERS, END_HEADERS | (0 if body else END_STREAM), self.stream, self.block)
                requests += frame(DATA, END_STREAM, self.stream, body) if body else b""
                self.stream, self.block = self.stream + 2, NEXT
            self.wire.stream.sendall(requests)
            left = batch
            while left > 0:
                left -= self.ended()

    def ended(self):
        """How many answers end in what is read next."""
        frames = self.wire.frames()
        if frames is None:
            raise RuntimeError("the proxy closed the connection")
        for kind, _, _, payload in frames:
            if kind not in (DATA, HEADERS) or kind == HEADERS and payload[0] != OK:
                raise RuntimeError(f"the proxy sent a frame of type {kind}: {payload[:60]!r}")
        return sum(flags & END_STREAM for _, flags, _, _ in frames)


def serve_origin(batch=1):
    """Starts an origin in this process, which answers requests once `batch` of them have come, and returns its port."""

    def serve(stream):
        wire, block, waiting = Wire(stream, len(PREFACE)), FIRST_ANSWER, []
        stream.sendall(OPENING)
        while (frames := wire.frames()) is not None:
            waiting += [of for kind, flags, of, _ in frames if kind in (DATA, HEADERS) and flags & END_STREAM]
            if len(waiting) < batch:
                continue
            answers = b""
            for of in waiting:
                answers += frame(HEADERS, END_HEADERS, of, block) + frame(DATA, END_STREAM, of, BODY)
                block = NEXT_ANSWER
            stream.sendall(answers)
            waiting = []

    return contenders.serve(serve)
