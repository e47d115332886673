"""HTTP/2 on the wire: frames, and HPACK (RFC 7541).

The encoder writes literals without indexing and without Huffman's code, so that a test can send any bytes. The decoder
reads everything that a peer may send.
"""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 2, 7, 8

# RFC 7541, Appendix B: the lengths of the 256 codes, in runs. The code is canonical, so that the lengths say all of it.
LENGTHS = (
    "13 23 28*7 24 30 28*2 30 28*8 30 28*9 6 10*2 12 13 6 8 11 10*2 8 11 8 6*3 5*3 6*7 7 8 15 6 12 10 13 6 7*22 8 7 8 "
    "13 19 13 14 6 15 5 6 5 6 5 6*3 5 7*2 6*3 5 6 7 6 5*2 6 7*5 15 11 14 13 28 20 22 20*2 22*3 23 22 23*5 24 23 24*2 "
    "22 23 24 23*4 21 22 23 22 23*2 24 22 21 20 22*2 23*2 21 23 22*2 24 21 22 23*2 21*2 22 21 23 22 23*2 20 22*3 23 "
    "22*2 23 26*2 20 19 22 23 22 25 26*3 27*2 26 24 25 19 21 26 27*2 26 27 24 21*2 26*2 28 27*3 20 24 20 21 22 21*2 "
    "23 22*2 25*2 24*2 26 23 26 27 26*2 27*5 28 27*5 26 "
)

# RFC 7541, Appendix A: name and value of each entry.
STATIC = (
    ":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 2"
    "04|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|ac"
    "cept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|content-d"
    "isposition|content-encoding|content-language|content-length|content-location|content-range|content-type|cookie"
    "|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last"
    "-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|"
    "server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)
STATIC = [tuple(entry.partition(" ")[::2]) for entry in STATIC.split("|")]


def frame(kind, flags=0, stream=0, payload=b""):
    """A frame; its length is the payload's."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def integer(value, bits, first=0):
    """An integer with a prefix of so many bits (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    rest, written = value - most, bytearray([first | most])
    while rest >= 128:
        written.append(rest & 127 | 128)
        rest >>= 7
    return bytes(written + bytes([rest]))


def field(name, value):
    """A field as a literal without indexing. Text is written as latin-1, so that every byte can be said."""
    parts = [part.encode("latin-1") if isinstance(part, str) else part for part in (name, value)]
    return b"\0" + b"".join(integer(len(part), 7) + part for part in parts)


def block(fields):
    """A block of fields."""
    return b"".join(field(name, value) for name, value in fields)


def _codes():
    """Huffman's code: from (length, code) to the symbol."""
    lengths = []
    for run in LENGTHS.split():
        length, _, times = run.partition("*")
        lengths += [int(length)] * int(times or 1)
    code, before, codes = 0, 0, {}
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        code <<= length - before
        codes[length, code] = symbol
        code, before = code + 1, length
    return codes


CODES = _codes()


def huffman(data):
    """Decodes a string in Huffman's code."""
    read, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            if (symbol := CODES.get((length, code))) is not None:
                read.append(symbol)
                code = length = 0
    return bytes(read)


class Decoder:
    """Reads the blocks of one direction of one connection."""

    def __init__(self):
        self.entries, self.size, self.most = [], 0, 4096

    def read(self, data):
        """The fields of a block, as pairs of str."""
        self.data, self.at, fields = data, 0, []
        while self.at < len(data):
            first = data[self.at]
            if first & 0x80:
                fields.append(self._entry(self._integer(7)))
            elif first & 0x40:
                fields.append(self._literal(6))
                self.entries.insert(0, fields[-1])
                self.size += sum(map(len, fields[-1])) + 32
                self._evict()
            elif first & 0x20:
                self.most = self._integer(5)
                self._evict()
            else:
                fields.append(self._literal(4))
        return fields

    def _evict(self):
        while self.size > self.most and self.entries:
            self.size -= sum(map(len, self.entries.pop())) + 32

    def _integer(self, bits):
        most = (1 << bits) - 1
        value, shift = self.data[self.at] & most, 0
        self.at += 1
        if value < most:
            return value
        while True:
            byte = self.data[self.at]
            self.at += 1
            value += (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value

    def _entry(self, index):
        return STATIC[index - 1] if index <= len(STATIC) else self.entries[index - len(STATIC) - 1]

    def _literal(self, bits):
        index = self._integer(bits)
        name = self._entry(index)[0] if index else self._string()
        return name, self._string()

    def _string(self):
        coded = self.data[self.at] & 0x80
        length = self._integer(7)
        data = self.data[self.at : self.at + length]
        self.at += length
        return (huffman(data) if coded else bytes(data)).decode("latin-1")


class Frames:
    """Takes a connection's bytes apart into frames."""

    def __init__(self):
        self.left = bytearray()

    def feed(self, data):
        """The frames that are whole by now: (kind, flags, stream, payload)."""
        self.left += data
        while len(self.left) >= 9:
            length = int.from_bytes(self.left[:3], "big")
            if len(self.left) < 9 + length:
                return
            kind, flags = self.left[3], self.left[4]
            stream = int.from_bytes(self.left[5:9], "big") & 0x7FFFFFFF
            payload = bytes(self.left[9 : 9 + length])
            del self.left[: 9 + length]
            yield kind, flags, stream, payload
