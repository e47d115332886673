"""The server behind Apache: it says in `X-Length` how long a body was."""

import asyncio


async def serve(port):
    """Serves until it is closed."""
    return await asyncio.start_server(_converse, "127.0.0.1", port, limit=2**20)


async def _converse(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])}
            length = int(fields.get("content-length", 0))
            await reader.readexactly(length)
            body = "" if head.startswith("HEAD ") else f"saw:{fields.get('x-request-id', '')};"
            writer.write(f"HTTP/1.1 200 OK\r\nX-Length: {length}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode("latin-1"))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
        pass
    finally:
        writer.close()
