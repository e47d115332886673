"""A collector of spans (OTLP over HTTP, protobuf) that counts them."""

import asyncio


class Collector:
    """Answers every POST with 200 and counts the spans in it."""

    def __init__(self, ledger):
        self.ledger, self.server, self.port = ledger, None, None
        self.streams = set()

    async def listen(self, port):
        """Begins to accept."""
        self.port = port
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=2**20)

    async def close(self):
        """Goes away between two POSTs."""
        self.server.close()
        for writer in list(self.streams):
            writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self.streams.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                if writer.is_closing():
                    return
                self.ledger.spans += spans(body)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
        except (OSError, EOFError):
            pass
        finally:
            self.streams.discard(writer)
            writer.close()


def spans(body):
    """How many spans a request holds: the fields 1 (of a resource), 2 (of a scope), 2 (a span), nested."""
    return sum(1 for resource in _fields(body, 1) for scope in _fields(resource, 2) for _ in _fields(scope, 2))


def _fields(data, wanted):
    """The length-delimited fields of a message that have this number."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(data, at)
                if tag >> 3 == wanted:
                    yield data[at : at + length]
                at += length


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return value, at
