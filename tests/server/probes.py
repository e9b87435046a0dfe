"""Requests as bytes, as somebody might send them who means harm, and how each must be answered."""

from __future__ import annotations

from typing import Final

TASK: Final = b'{"task_type": "echo"}'
OTHER: Final = b'{"task_type": "other"}'

HOST: Final = b"host: 127.0.0.1"
JSON: Final = b"content-type: application/json"
LENGTH: Final = b"content-length: %d" % len(TASK)
CHUNKED: Final = b"transfer-encoding: chunked"
LAST: Final = b"connection: close"
CHUNKS: Final = b"%x\r\n%b\r\n0\r\n\r\n" % (len(TASK), TASK)

_SUBMIT: Final = b"POST /api/v1/tasks HTTP/1.1"
_LIST: Final = b"GET /api/v1/tasks HTTP/1.1"
_SMUGGLED: Final = b"\r\n".join((_SUBMIT, HOST, JSON, LENGTH, LAST, b"", TASK))


def request(*headers: bytes, start: bytes = _SUBMIT, body: bytes = b"") -> bytes:
    """A request of these lines."""
    return b"\r\n".join((start, *headers, b"", body))


def submit(*headers: bytes, start: bytes = _SUBMIT, body: bytes = TASK) -> bytes:
    """A submit with a length, the last of its connection."""
    return request(HOST, JSON, LENGTH, LAST, *headers, start=start, body=body)


def hosts(*lines: bytes, start: bytes = _SUBMIT) -> bytes:
    """A submit with these lines for its host."""
    return request(*lines, JSON, LENGTH, LAST, start=start, body=TASK)


def coded(*lines: bytes, start: bytes = _SUBMIT, body: bytes = CHUNKS) -> bytes:
    """A submit whose length these lines tell."""
    return request(HOST, JSON, LAST, *lines, start=start, body=body)


TAKEN: Final[dict[str, tuple[bytes, tuple[int, ...]]]] = {
    "plain": (submit(), (201,)),
    "names in capitals": (request(b"HOST: 127.0.0.1", JSON, LENGTH.upper(), LAST, body=TASK), (201,)),
    "a port": (hosts(b"host: 127.0.0.1:8420"), (201,)),
    "an address of IPv6": (hosts(b"host: [::1]:8420"), (201,)),
    "an empty header": (submit(b"x-empty:"), (201,)),
    "letters beyond ASCII in a header": (submit(b"x-name: \xe4\xf6\xfc"), (201,)),
    "an empty line before it": (b"\r\n\r\n" + submit(), (201,)),
    "HTTP/1.0": (submit(start=b"POST /api/v1/tasks HTTP/1.0"), (201,)),
    "chunked": (coded(CHUNKED), (201,)),
    "many chunks": (
        coded(CHUNKED, body=b"".join(b"1\r\n%c\r\n" % byte for byte in TASK) + b"0\r\n\r\n"),
        (201,),
    ),
    "a chunk with an extension": (coded(CHUNKED, body=CHUNKS.replace(b"\r\n", b";name=value\r\n", 1)), (201,)),
    "absolute form": (hosts(HOST, start=b"POST http://127.0.0.1/api/v1/tasks HTTP/1.1"), (201,)),
    "absolute form, whose host counts": (
        hosts(b"host: example.com", start=b"POST http://127.0.0.1/api/v1/tasks HTTP/1.1"),
        (201,),
    ),
    "expect": (submit(b"expect: 100-continue"), (201,)),
    "an upgrade to what is not spoken": (submit(b"connection: upgrade", b"upgrade: h2c"), (201,)),
    "two in one breath": (request(HOST, JSON, LENGTH, body=TASK) + submit(), (201, 201)),
    "a request in a body": (
        request(HOST, LAST, b"content-length: %d" % len(_SMUGGLED), start=_LIST, body=_SMUGGLED),
        (200,),
    ),
    "a request behind the last": (submit() + _SMUGGLED, (201,)),
}
"""What must be answered as what it is."""

REFUSED: Final[dict[str, tuple[bytes, tuple[int, ...]]]] = {
    # Hosts
    "no host": (hosts(), (400,)),
    "no host, HTTP/1.0": (hosts(start=b"POST /api/v1/tasks HTTP/1.0"), (400,)),
    "two hosts": (hosts(HOST, b"host: example.com"), (400,)),
    "the same host twice": (hosts(HOST, HOST), (400,)),
    "an empty host": (hosts(b"host:"), (400,)),
    "two hosts in one line": (hosts(b"host: 127.0.0.1, example.com"), (400,)),
    "a host with a path": (hosts(b"host: 127.0.0.1/x"), (400,)),
    "a host with a user": (hosts(b"host: me@127.0.0.1"), (400,)),
    "a host with a port that is none": (hosts(b"host: 127.0.0.1:8x"), (400,)),
    "absolute form of another host": (hosts(HOST, start=b"POST http://example.com/api/v1/tasks HTTP/1.1"), (403,)),
    "absolute form with a user": (hosts(HOST, start=b"POST http://me@127.0.0.1/api/v1/tasks HTTP/1.1"), (400,)),
    "absolute form of another scheme": (hosts(HOST, start=b"POST ftp://127.0.0.1/api/v1/tasks HTTP/1.1"), (400,)),
    "absolute form without a host": (hosts(HOST, start=b"POST http:///api/v1/tasks HTTP/1.1"), (400,)),
    "absolute form without a header": (hosts(start=b"POST http://127.0.0.1/api/v1/tasks HTTP/1.1"), (400,)),
    "absolute form with letters beyond ASCII": (
        hosts(HOST, start=b"POST http://127.0.0.1/\xff HTTP/1.1"),
        (400,),
    ),
    "letters beyond ASCII in the path": (submit(start=b"POST /api/v1/tasks\xff HTTP/1.1"), (400,)),
    "a fragment": (submit(start=b"POST /api/v1/tasks#x HTTP/1.1"), (400,)),
    "a tunnel": (request(HOST, start=b"CONNECT 127.0.0.1:80 HTTP/1.1"), (501,)),
    "a tunnel to anywhere": (request(HOST, start=b"CONNECT * HTTP/1.1"), (501,)),
    "an asterisk": (request(HOST, LAST, start=b"OPTIONS * HTTP/1.1"), (404,)),
    # Who calls
    "two keys": (submit(b"authorization: Bearer fl_a_b", b"authorization: Bearer fl_c_d"), (400,)),
    # Codings
    "gzip, chunked": (coded(b"transfer-encoding: gzip, chunked"), (501,)),
    "chunked, gzip": (coded(b"transfer-encoding: chunked, gzip"), (400,)),
    "gzip": (coded(b"transfer-encoding: gzip"), (501,)),
    "identity": (coded(b"transfer-encoding: identity"), (501,)),
    "chunked twice": (coded(b"transfer-encoding: chunked, chunked"), (400,)),
    "chunked in two lines": (coded(CHUNKED, CHUNKED), (400,)),
    "chunked, written otherwise": (coded(b"transfer-encoding: Chunked"), (501,)),
    "nearly chunked": (coded(b"transfer-encoding: xchunked"), (501,)),
    "chunked behind a tabulator": (coded(b"transfer-encoding: \x0bchunked"), (400,)),
    "no coding": (coded(b"transfer-encoding:"), (400,)),
    "chunked and HTTP/1.0": (coded(CHUNKED, start=b"POST /api/v1/tasks HTTP/1.0"), (400,)),
    "chunked and a length": (coded(CHUNKED, b"content-length: 4"), (400,)),
    "a length and chunked": (coded(b"content-length: 4", CHUNKED), (400,)),
    "a space before the colon": (coded(b"transfer-encoding : chunked"), (400,)),
    "gzip for the content": (submit(b"content-encoding: gzip"), (415,)),
    "identity for the content": (submit(b"content-encoding: identity"), (415,)),
    # Lengths
    "two lengths": (coded(LENGTH, b"content-length: 4", body=TASK), (400,)),
    "the same length twice": (coded(LENGTH, LENGTH, body=TASK), (400,)),
    "two lengths in one line": (coded(b"content-length: 21, 21", body=TASK), (400,)),
    "a length with a sign": (coded(b"content-length: +21", body=TASK), (400,)),
    "a length below nothing": (coded(b"content-length: -1", body=TASK), (400,)),
    "a length in hexadecimal digits": (coded(b"content-length: 0x15", body=TASK), (400,)),
    "a length with a space": (coded(b"content-length: 2 1", body=TASK), (400,)),
    "no length at all": (coded(b"content-length:", body=TASK), (400,)),
    "a length without an end": (coded(b"content-length: " + b"9" * 30, body=TASK), (400,)),
    "a length over the limit": (coded(b"content-length: 99999999", body=TASK), (413,)),
    # Chunks
    "a trailer": (coded(CHUNKED, body=CHUNKS[:-2] + b"x-some: more\r\n\r\n"), (400,)),
    "a key in a trailer": (coded(CHUNKED, body=CHUNKS[:-2] + b"authorization: Bearer fl_a_b\r\n\r\n"), (400,)),
    "a trailer without an end": (coded(CHUNKED, body=CHUNKS[:-2] + b"x-some: " + b"x" * 400_000), (400,)),
    "an extension without an end": (coded(CHUNKED, body=b"15;" + b"x" * 400_000), (400,)),
    "a chunk of no size": (coded(CHUNKED, body=b"\r\n" + CHUNKS), (400,)),
    "a size that is none": (coded(CHUNKED, body=b"zz\r\n" + CHUNKS), (400,)),
    "a size over all bounds": (coded(CHUNKED, body=b"f" * 17 + b"\r\n" + CHUNKS), (400,)),
    "a chunk longer than it says": (coded(CHUNKED, body=b"5\r\n" + TASK + b"\r\n0\r\n\r\n"), (400,)),
    "chunks with bare line feeds": (coded(CHUNKED, body=CHUNKS.replace(b"\r\n", b"\n")), (400,)),
    # Lines
    "bare line feeds": (submit().replace(b"\r\n", b"\n"), (400,)),
    "a bare carriage return": (submit(b"x-some: one\rx-other: two"), (400,)),
    "a zero in a header": (submit(b"x-some: \x00"), (400,)),
    "a folded line": (submit(b"x-some: one", b" two"), (400,)),
    "a space before the first header": (request(b" x-some: one", HOST, JSON, LENGTH, LAST, body=TASK), (400,)),
    "a line without a colon": (submit(b"x-some"), (400,)),
    "a name with a space": (submit(b"x some: one"), (400,)),
    "a method that is none": (submit(start=b"PSOT /api/v1/tasks HTTP/1.1"), (400,)),
    "HTTP/0.9": (submit(start=b"POST /api/v1/tasks HTTP/0.9"), (400,)),
    "HTTP/1.2": (submit(start=b"POST /api/v1/tasks HTTP/1.2"), (400,)),
    "HTTP/2.0": (submit(start=b"POST /api/v1/tasks HTTP/2.0"), (400,)),
    "no version": (b"POST /api/v1/tasks\r\n\r\n", (400,)),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", (400,)),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    # Sizes
    "a header of 64 KB": (submit(b"x-some: " + b"x" * 65_536), (431,)),
    "2,000 headers": (submit(*(b"x-%d: y" % number for number in range(2_000))), (431,)),
    "101 headers": (submit(*(b"x-%d: y" % number for number in range(97))), (431,)),
    "a path of 64 KB": (request(HOST, LAST, start=b"GET /" + b"x" * 65_536 + b" HTTP/1.1"), (431,)),
    # Upgrades
    "a WebSocket by POST": (submit(b"connection: upgrade", b"upgrade: websocket"), (400,)),
    "a WebSocket with a body": (
        request(HOST, LENGTH, b"connection: upgrade", b"upgrade: websocket", start=b"GET /ws HTTP/1.1", body=TASK),
        (400,),
    ),
    "a WebSocket over HTTP/1.0": (
        request(HOST, b"connection: upgrade", b"upgrade: websocket", start=b"GET /ws HTTP/1.0"),
        (400,),
    ),
    # Behind what was accepted
    "garbage behind a request": (request(HOST, JSON, LENGTH, body=TASK) + b"\x00garbage\r\n\r\n", (201, 400)),
    "a refused one behind a request": (request(HOST, JSON, LENGTH, body=TASK) + hosts(), (201, 400)),
    "garbage behind two": (request(HOST, JSON, LENGTH, body=TASK) * 2 + b"}garbage\r\n\r\n", (201, 201, 400)),
    "a broken body behind a request": (
        request(HOST, JSON, LENGTH, body=TASK) + coded(CHUNKED, body=b"zz\r\n"),
        (201, 400),
    ),
    "garbage behind a list": (request(HOST, start=_LIST) + b"\x00garbage\r\n\r\n", (200, 400)),
}
"""What must be refused, and what was accepted before it answered."""
