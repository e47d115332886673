"""Sends cases to an address, one connection each, and reads what comes back."""

import asyncio
import re

import http2 as wire

# How long a connection may stay silent: before its first byte, and after it. The proxy's own bounds are shorter than the first.
SILENT, QUIET = 4, 0.1
SAW = re.compile(rb"saw:([^;]*);")


class Client:
    """The client of one address. `odd` gathers what was answered to the wrong client."""

    def __init__(self, cases, port, http2_port, shared):
        names = ("{}", "{}-in", "{}-late", "probe-{}")
        self.names = {name.format(case.name) for case in cases for name in names}
        self.port, self.http2_port, self.shared = port, http2_port, shared
        self.odd, self.lost = [], 0

    async def send_all(self, cases, lanes=3):
        """Sends all cases, some side by side."""
        waiting = iter(cases)

        async def lane():
            for case in waiting:
                await self._send(case)
                await self._probe(case)

        await asyncio.gather(*(lane() for _ in range(lanes)))

    async def _send(self, case):
        is_http2 = case.name.startswith("h2-")
        read = await self._converse(self.http2_port if is_http2 else self.port, case.raw, is_http2)
        for saw in SAW.findall(read):
            name = saw.decode("latin-1")
            if name in self.names and name not in (case.name, f"{case.name}-in", f"{case.name}-late"):
                self.odd.append((case.name, f"its client got the answer to {name}"))

    async def _probe(self, case):
        """A plain request behind the case must get its own answer."""
        name = f"probe-{case.name}"
        raw = f"GET /probe HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: {name}\r\nConnection: close\r\n\r\n".encode()
        read = await self._converse(self.port, raw, False, 10)
        saw = [saw.decode("latin-1") for saw in SAW.findall(read)]
        if read.startswith(b"HTTP/1.1 502 ") and self.shared:
            # A request of another client closed the connection that both were to share.
            self.lost += 1
        elif not read.startswith(b"HTTP/1.1 200 ") or (saw != [name] and saw != [""] and not self._renamed(saw)):
            self.odd.append((case.name, f"a plain request behind it got {bytes(read[:60])!r}, saw {saw}"))

    def _renamed(self, saw):
        """A front gives each request an id of its own."""
        return len(saw) == 1 and re.fullmatch(r"[0-9a-f-]{32,36}", saw[0])

    async def _converse(self, port, raw, is_http2, silent=None):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        read, ended = bytearray(), _Streams(raw) if is_http2 else None
        try:
            writer.write(raw)
            while True:
                wait = QUIET if read and not is_http2 and silent is None else silent or SILENT
                part = await asyncio.wait_for(reader.read(65536), wait)
                read += part
                if not part or ended and ended.all_done(part):
                    break
        except (TimeoutError, asyncio.TimeoutError, OSError):
            pass
        finally:
            writer.close()
        return read


class _Streams:
    """The streams that a client opens, and which of them have been answered."""

    def __init__(self, raw):
        opened = wire.Frames().feed(raw[len(wire.PREFACE) :])
        self.open = {stream for kind, _, stream, _ in opened if kind == wire.HEADERS and stream % 2}
        self.frames = wire.Frames()

    def all_done(self, part):
        for kind, flags, stream, _ in self.frames.feed(part):
            if kind == wire.GOAWAY:
                self.open.clear()
            if kind == wire.RST_STREAM or kind in (wire.DATA, wire.HEADERS) and flags & wire.END_STREAM:
                self.open.discard(stream)
        return not self.open
