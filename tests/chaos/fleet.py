"""Upstreams that answer, fail, stall, reset, restart and move, in HTTP/1.1 and HTTP/2. All of them live in this process.

They count every request that reached them, to the last one: before a listener is closed, a filter keeps new connections
out and the waiting ones are taken; a connection is ended by a FIN and read on to its end. Only a connection whose request
is known is reset.
"""

import asyncio
import ctypes
import socket
import struct

import http2 as wire

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
SLOW = 0.2


class Upstream:
    """One address. `protocol` makes what serves a connection."""

    def __init__(self, protocol, ledger):
        self.protocol, self.ledger = protocol, ledger
        self.port, self.listener = None, None
        self.connections = set()

    async def listen(self, port):
        """Begins to accept."""
        self.port = port
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self.listener, self._accept)

    def _accept(self):
        while True:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return
            loop = asyncio.get_running_loop()
            loop.create_task(loop.connect_accepted_socket(lambda: self.protocol(self), accepted))

    async def close(self):
        """Closes the listener and every connection, as the end of a process does, but counts what was under way."""
        code = ctypes.create_string_buffer(DROP_ALL)
        self.listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code)))
        self._accept()
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.leave()

    def act(self, id, wanted):
        """What is done with a request: its list names an action for each time that it is seen."""
        self.ledger.seen[id] += 1
        actions = wanted.split(",")
        return actions[min(self.ledger.seen[id], len(actions)) - 1]


class Connection(asyncio.Protocol):
    """What both protocols share."""

    def __init__(self, upstream):
        self.upstream, self.transport, self.ending = upstream, None, False

    def connection_made(self, transport):
        self.transport = transport
        self.upstream.connections.add(self)

    def connection_lost(self, error):
        self.upstream.connections.discard(self)

    def eof_received(self):
        return False

    def end(self):
        """Says that nothing more comes, and reads on: every request that was sent is counted."""
        if not self.ending and not self.transport.is_closing():
            self.ending = True
            self.transport.write_eof()


class Http1(Connection):
    """HTTP/1.1. Bodies hold nothing but the letter x, so that counting them is measuring."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self.left, self.request = b"", None
        # Whether an answer is still to come, or to go on.
        self.waits = False

    def data_received(self, data):
        if self.request is None:
            self.left += data
            head, found, data = self.left.partition(b"\r\n\r\n")
            if not found:
                return
            self.left = b""
            self._begin(head.decode("latin-1"))
        if self.request["length"] is None:
            self.request["tail"] = (self.request["tail"] + data)[-7:]
            whole = self.request["tail"].endswith(b"0\r\n\r\n")
        # An audit is JSON of a known length.
        self.request["read"] += len(data) if self.request["audit"] else data.count(b"x")
        if self.request["length"] is not None:
            whole = self.request["read"] >= self.request["length"]
        if whole:
            request, self.request = self.request, None
            self._answer(request)

    def _begin(self, head):
        lines = head.split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        id = fields.get("x-request-id", "")
        if lines[0].startswith("POST /audit "):
            self.upstream.ledger.audits[id] += 1
            action = fields.get("x-do-audit", "ok")
        else:
            action = self.upstream.act(id, fields.get("x-do", "ok"))
        length = None if "transfer-encoding" in fields else int(fields.get("content-length", 0))
        self.request = {
            "id": id,
            "action": action,
            "read": 0,
            "length": length,
            "tail": b"",
            "audit": lines[0].startswith("POST /audit "),
        }
        if fields.get("expect"):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def leave(self):
        """The process ends: a request that is known is reset, an idle connection ends."""
        if self.request is not None or self.waits:
            self.transport.abort()
        else:
            self.end()

    def _answer(self, request):
        if self.ending:
            return
        action = request["action"]
        match action:
            case "ok" | "big" | "chunked" | "slow":
                if not request["audit"]:
                    self.upstream.ledger.read[request["id"]].append(request["read"])
                if action == "slow":
                    self.waits = True
                    asyncio.get_running_loop().call_later(SLOW, self._write, _whole("ok"))
                else:
                    self._write(_whole(action))
            case "hang":
                self.waits = True
            case "stall":
                self.waits = True
                self._write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"o" * 400, True)
            case "cut":
                self._write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"o" * 400, True)
                # Behind the bytes: a reset would take them away.
                self.waits = True
                asyncio.get_running_loop().call_later(0.05, self.transport.abort)
            case "reset":
                self.transport.abort()
            case "close":
                self.end()
            case _:
                more = "Retry-After: 0\r\n" if action == "429" else ""
                self._write(f"HTTP/1.1 {action} Told\r\n{more}Content-Length: 4\r\n\r\nfail".encode())

    def _write(self, data, waits=False):
        self.waits = waits
        if not self.transport.is_closing() and not self.ending:
            self.transport.write(data)


def _whole(action):
    """A whole answer."""
    match action:
        case "big":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n" + b"o" * 150000
        case "chunked":
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nooo\r\n4\r\noooo\r\n0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Http2(Connection):
    """HTTP/2. Bodies are small enough for the first window."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self.frames, self.decoder = wire.Frames(), wire.Decoder()
        self.preface, self.block, self.last, self.goaway = len(wire.PREFACE), b"", 0, None
        self.requests = {}

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(wire.frame(wire.SETTINGS))

    def data_received(self, data):
        skip = min(self.preface, len(data))
        self.preface -= skip
        for kind, flags, stream, payload in self.frames.feed(data[skip:]):
            self._frame(kind, flags, stream, payload)

    def _frame(self, kind, flags, stream, payload):
        if kind in (wire.HEADERS, wire.CONTINUATION):
            if kind == wire.HEADERS and flags & wire.WITH_PRIORITY:
                payload = payload[5:]
            self.block += payload
            if kind == wire.HEADERS:
                self.flags = flags
            if flags & wire.END_HEADERS:
                fields, self.block = dict(self.decoder.read(self.block)), b""
                if stream in self.requests or stream <= self.last:
                    self._ended(stream)
                    return
                self.last = stream
                self._begin(stream, fields)
                if self.flags & wire.END_STREAM:
                    self._ended(stream)
        elif kind == wire.DATA:
            if payload:
                increment = len(payload).to_bytes(4, "big")
                self._send(wire.frame(wire.WINDOW_UPDATE, 0, 0, increment) + wire.frame(wire.WINDOW_UPDATE, 0, stream, increment))
            if stream in self.requests:
                self.requests[stream]["read"] += payload.count(b"x")
                if flags & wire.END_STREAM:
                    self._ended(stream)
        elif kind == wire.SETTINGS and not flags & wire.ACK:
            self._send(wire.frame(wire.SETTINGS, wire.ACK))
        elif kind == wire.PING and not flags & wire.ACK:
            self._send(wire.frame(wire.PING, wire.ACK, 0, payload))
        elif kind == wire.RST_STREAM:
            self.requests.pop(stream, None)

    def _begin(self, stream, fields):
        id = fields.get("x-request-id", "")
        if self.goaway is not None and stream > self.goaway:
            # It was told that nothing is done with it.
            self.upstream.ledger.refused[id] += 1
            return
        action = self.upstream.act(id, fields.get("x-do", "ok"))
        if action == "refuse":
            self.upstream.ledger.seen[id] -= 1
            self.upstream.ledger.refused[id] += 1
        self.requests[stream] = {"id": id, "action": action, "read": 0}

    def _ended(self, stream):
        request = self.requests.get(stream)
        if not request or self.ending:
            return
        reset = lambda code: self._send(wire.frame(wire.RST_STREAM, 0, stream, code.to_bytes(4, "big")))
        match request["action"]:
            case "ok" | "big" | "chunked":
                self.upstream.ledger.read[request["id"]].append(request["read"])
                self._respond(stream, "200", b"hello")
            case "slow":
                self.upstream.ledger.read[request["id"]].append(request["read"])
                asyncio.get_running_loop().call_later(SLOW, self._respond, stream, "200", b"hello")
            case "hang":
                pass
            case "stall":
                self._respond(stream, "200", b"o" * 400, False)
            case "cut":
                self._respond(stream, "200", b"o" * 400, False)
                reset(wire.INTERNAL_ERROR)
            case "refuse":
                reset(wire.REFUSED_STREAM)
            case "reset":
                reset(wire.CANCEL)
            case "close":
                self.leave()
            case status:
                self._respond(stream, status, b"fail")

    def _respond(self, stream, status, body, whole=True):
        if stream in self.requests:
            fields = [(":status", status), *([("content-length", "1000")] if not whole else [])]
            self._send(wire.frame(wire.HEADERS, wire.END_HEADERS, stream, wire.block(fields)))
            self._send(wire.frame(wire.DATA, wire.END_STREAM if whole else 0, stream, body))
            if whole:
                del self.requests[stream]

    def _send(self, data):
        if not self.ending and not self.transport.is_closing():
            self.transport.write(data)

    def leave(self):
        """The process ends: it tells which requests it has begun."""
        if self.goaway is None:
            self.goaway = self.last
            self._send(wire.frame(wire.GOAWAY, 0, 0, self.last.to_bytes(4, "big") + bytes(4)))
            self.end()
