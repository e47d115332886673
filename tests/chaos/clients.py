"""Clients in HTTP/1.1, with and without TLS, and in HTTP/2. Some of them leave."""

import asyncio
import random

import http2 as wire

# What an upstream does with a request, at its first, second, third time, and how often it is asked for.
PLAIN = {
    "ok": 60,
    "chunked": 12,
    "big": 6,
    "slow": 5,
    "404": 4,
    "500": 2,
    "503": 2,
    "cut": 2,
    "stall": 1,
    "reset": 2,
    "close": 2,
    "hang": 1,
}
RETRIED = {
    "ok": 40,
    "503,ok": 10,
    "503,503,ok": 6,
    "503,503,503": 3,
    "reset,ok": 6,
    "close,ok": 5,
    "hang,ok": 1,
    "429,ok": 6,
    "cut": 1,
    "slow": 4,
    "503,hang,ok": 1,
    "500": 2,
}
FRAMED = {
    "ok": 60,
    "slow": 8,
    "503,ok": 8,
    "404": 4,
    "refuse,ok": 4,
    "reset,ok": 4,
    "cut": 2,
    "stall": 1,
    "hang,ok": 1,
    "close,ok": 1,
}
ROUTES = {
    "plain": (PLAIN, 30),
    "retried": (RETRIED, 25),
    "audited": (RETRIED, 20),
    "moving": (RETRIED, 10),
    "framed": (FRAMED, 15),
}
PATIENCE = 20


class Reader(asyncio.StreamReader):
    """Hands out what came before a connection broke: `asyncio`'s own forgets it."""

    def set_exception(self, error):
        self.feed_eof()


async def connect(port, tls):
    """A connection: its reader and its writer."""
    loop = asyncio.get_running_loop()
    reader = Reader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, "127.0.0.1", port, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Load:
    """All clients of a run."""

    def __init__(self, ledger, seed, ports, tls):
        self.ledger, self.random, self.ports, self.tls = ledger, random.Random(seed), ports, tls
        self.number, self.shown = 0, set()

    def draw(self, protocol):
        """The next request."""
        self.number += 1
        id = f"c-{self.number}"
        route = self._one({name: weight for name, (_, weight) in ROUTES.items()})
        wanted = self._one(ROUTES[route][0])
        size = self.random.choice([1, 100, 2000, 20000 if protocol == "http1" else 4000]) if self.random.random() < 0.3 else 0
        fields = {"x-request-id": id, "x-do": wanted}
        if route == "audited":
            fields["x-do-audit"] = self._one({"ok": 90, "slow": 4, "503": 4, "reset": 2})
        leaves = self.random.random() * 0.4 if self.random.random() < 0.08 else None
        self.ledger.sent[id] = size
        return {
            "id": id,
            "path": f"/{route}",
            "fields": fields,
            "size": size,
            "leaves": leaves,
            "chunked": self.random.random() < 0.4,
        }

    def _one(self, weights):
        return self.random.choices(list(weights), weights.values())[0]

    def told(self, request, kind, status=0):
        """What came of a request."""
        self.ledger.clients[request["id"]] = (kind, status)

    async def http1(self, pace, tls=False):
        """A client with one connection after another."""
        stream = None
        while await pace():
            request = self.draw("http1")
            try:
                if stream is None:
                    stream = await connect(self.ports[tls], self.tls if tls else None)
                    if tls:
                        self.shown.add(stream[1].get_extra_info("ssl_object").getpeercert()["serialNumber"])
                keeps = await asyncio.wait_for(self._ask(stream, request), PATIENCE)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                keeps = False
                if request["id"] not in self.ledger.clients:
                    self.told(request, "late" if isinstance(error, TimeoutError) else "silent")
            if not keeps and stream:
                stream[1].transport.abort()
                stream = None
        if stream:
            stream[1].transport.abort()

    async def _ask(self, stream, request):
        """Sends a request and reads its answer; says whether the connection may be used again."""
        reader, writer = stream
        lines = [f"{name}: {value}" for name, value in request["fields"].items()]
        body = b"x" * request["size"]
        if request["size"] and request["chunked"]:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        elif request["size"]:
            lines.append(f"Content-Length: {len(body)}")
        method = "POST" if request["size"] else "GET"
        head = "\r\n".join([f"{method} {request['path']} HTTP/1.1", "Host: chaos.test", *lines]) + "\r\n\r\n"
        if request["leaves"] is None:
            writer.write(head.encode() + body)
            return await self._answer(reader, request)
        # Leaves in the middle of its body, or while it waits for the answer or reads it.
        writer.write(head.encode() + body[: len(body) // 2 if self.random.random() < 0.3 else None])
        try:
            await asyncio.wait_for(self._answer(reader, request), request["leaves"])
        except (asyncio.TimeoutError, EOFError):
            pass
        self.told(request, "left")
        return False

    async def _answer(self, reader, request):
        head = b""
        while head == b"" or head.startswith(b"HTTP/1.1 1"):
            head = await reader.readuntil(b"\r\n\r\n")
        status, lower = int(head[9:12]), head.lower()
        try:
            if b"\r\ntransfer-encoding: chunked" in lower:
                while True:
                    size = int(await reader.readuntil(b"\r\n"), 16)
                    await reader.readexactly(size + 2)
                    if size == 0:
                        break
            elif status not in (204, 304):
                length = lower.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
        except (OSError, EOFError):
            self.told(request, "broken", status)
            return False
        self.told(request, "answered", status)
        # Now and then a new connection, so that new certificates are seen.
        return b"\r\nconnection: close" not in lower and self.random.random() < 0.95

    async def http2(self, pace):
        """A client whose requests share a connection."""
        shared, made = None, []
        while await pace():
            if shared is None or shared.lost:
                _, shared = await asyncio.get_running_loop().create_connection(
                    lambda: Http2(self), "127.0.0.1", self.ports[False]
                )
                made.append(shared)
            shared.ask(self.draw("http2"))
            if self.random.random() < 0.002:
                shared.leave()
        end = asyncio.get_running_loop().time() + PATIENCE
        while any(one.open for one in made) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.1)
        for one in made:
            for request, _ in one.open.values():
                self.told(request, "late")
            one.open.clear()
            one.transport.abort()


class Http2(asyncio.Protocol):
    """A connection in HTTP/2."""

    def __init__(self, load):
        self.load, self.lost, self.next = load, False, 1
        self.frames, self.decoder, self.block, self.open = wire.Frames(), wire.Decoder(), b"", {}

    def connection_made(self, transport):
        self.transport = transport
        # A window for whatever may come: the answers' sum stays under 2 GiB.
        window = wire.frame(wire.SETTINGS, 0, 0, b"\0\4\x3f\xff\xff\xff") + wire.frame(
            wire.WINDOW_UPDATE, 0, 0, b"\x3f\xff\xff\xff"
        )
        transport.write(wire.PREFACE + window)

    def ask(self, request):
        """Sends a request; its answer is told to the ledger."""
        stream, self.next = self.next, self.next + 2
        method = "POST" if request["size"] else "GET"
        fields = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "chaos.test"),
            (":path", request["path"]),
            *request["fields"].items(),
        ]
        self.open[stream] = request, None
        flags = wire.END_HEADERS | (0 if request["size"] else wire.END_STREAM)
        data = wire.frame(wire.HEADERS, flags, stream, wire.block(fields))
        body, whole = b"x" * request["size"], request["leaves"] is None or self.load.random.random() < 0.7
        while body and (whole or len(body) > request["size"] // 2):
            part, body = body[:8000], body[8000:]
            data += wire.frame(wire.DATA, 0 if body or not whole else wire.END_STREAM, stream, part)
        self.transport.write(data)
        if request["leaves"] is not None:
            asyncio.get_running_loop().call_later(request["leaves"], self._reset, stream)

    def _reset(self, stream):
        if stream in self.open and not self.lost:
            self.load.told(self.open.pop(stream)[0], "left")
            self.transport.write(wire.frame(wire.RST_STREAM, 0, stream, wire.CANCEL.to_bytes(4, "big")))

    def leave(self):
        """Leaves with all requests at once."""
        for request, _ in self.open.values():
            self.load.told(request, "left")
        self.open.clear()
        self.lost = True
        self.transport.abort()

    def connection_lost(self, error):
        self.lost = True
        for request, status in self.open.values():
            self.load.told(request, "broken" if status else "silent", status or 0)
        self.open.clear()

    def data_received(self, data):
        for kind, flags, stream, payload in self.frames.feed(data):
            if kind in (wire.HEADERS, wire.CONTINUATION):
                self.block += payload
                if flags & wire.END_HEADERS:
                    fields, self.block = dict(self.decoder.read(self.block)), b""
                    if stream in self.open and not fields.get(":status", "1").startswith("1"):
                        self.open[stream] = self.open[stream][0], int(fields[":status"])
            elif kind == wire.SETTINGS and not flags & wire.ACK:
                self.transport.write(wire.frame(wire.SETTINGS, wire.ACK))
            elif kind == wire.PING and not flags & wire.ACK:
                self.transport.write(wire.frame(wire.PING, wire.ACK, 0, payload))
            elif kind == wire.GOAWAY:
                self.lost = True
            if kind == wire.RST_STREAM and stream in self.open:
                request, status = self.open.pop(stream)
                self.load.told(request, "broken" if status else "silent", status or 0)
            if kind in (wire.HEADERS, wire.DATA) and flags & wire.END_STREAM and stream in self.open:
                request, status = self.open.pop(stream)
                self.load.told(request, "answered", status)
