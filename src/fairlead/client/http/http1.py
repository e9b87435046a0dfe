"""HTTP/1.1 as a client speaks it, without any sending or receiving: where to, requests as bytes, replies from bytes.

httptools reads the replies, as strictly as it can. Here is what it leaves open: where a reply without a length ends,
what is refused though it could be read, and how much may come that leads to nothing.
"""

from __future__ import annotations

import re
import ssl
import string
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from fairlead._version import __version__
from fairlead.client.http.transport import Address, Broken, Reply

_AS_IT_IS: Final = re.sub(r'["#<>\\^`{|}]', "", string.digits + string.ascii_letters + string.punctuation)
"""What a path and a query may have in them unescaped, the sign of an escape among them."""

_MOST_BYTES: Final = 64 * 1024
"""The most that is read of a head, or of anything else that is no body."""

_VERSIONS: Final = ("1.1", "1.0")
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_FIRST_FINAL: Final = 200
_SWITCHING: Final = 101


class Requests:
    """Writes the requests to one server."""

    def __init__(self, host: str, path: str, key: str | None) -> None:
        """The server's name as it is to be told, the path that it is at, and the key to it."""
        self._path = path
        lines = [f"host: {host}", f"user-agent: fairlead/{__version__}", "accept: application/json"]
        if key:
            lines.append(f"authorization: Bearer {key}")
        self._headers = "".join(f"{line}\r\n" for line in lines).encode("ascii")

    def write(self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None) -> bytes:
        """A whole request, to be sent in one piece: a server is quickest with what arrives at once."""
        asked = f"{self._path}{path}?{urlencode(query)}" if query else self._path + path
        head = b"%b %b HTTP/1.1\r\n%b" % (method.encode(), quote(asked, safe=_AS_IT_IS).encode(), self._headers)
        if body is None:
            return head + (b"\r\n" if method in ("GET", "DELETE") else b"content-length: 0\r\n\r\n")
        return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body)


class Reading:
    """Reads the reply to one request."""

    keeps = False
    """Whether the connection can carry another request, once the reply is whole."""
    _status = 0
    _has_head = False
    _is_whole = False
    _moved = False
    """Whether the bytes at hand have ended a head or were part of a body."""
    _size = 0
    """How many bytes have come since, in further pieces, that did not."""

    def __init__(self) -> None:
        import httptools

        self._parser = httptools.HttpResponseParser(self)
        self._not_http = httptools.HttpParserError
        self._framing: list[bytes] = []
        """What the head says of where the body ends."""
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> Reply | None:
        """The reply, once it is whole; `data` is what has arrived, and empty at the end of the connection."""
        if not data:
            return self._ended()
        self._moved = False
        try:
            self._parser.feed_data(data)
        except self._not_http as error:
            # Behind the reply it is what nobody asked for: it must not be taken for the answer to what is asked next.
            self.keeps = False
            if not self._is_whole:
                raise _refused(error) from None
        if self._is_whole:
            return self._reply()
        self._size = 0 if self._moved else self._size + len(data)
        if self._size > _MOST_BYTES:
            raise Broken("its answer is not valid HTTP: its headers are too long")
        return None

    def _ended(self) -> Reply:
        if not self._has_head:
            raise Broken("it closed the connection without an answer")
        if self._framing:
            raise Broken("it closed the connection in the middle of its answer")
        return self._reply()

    def _reply(self) -> Reply:
        # It refers back to this: without it, neither waits for the garbage collector.
        del self._parser
        return Reply(self._status, b"".join(self._body))

    # What the parser finds. Behind the reply it may find more, which only tells that the connection is of no more use.

    def on_message_begin(self) -> None:
        self.keeps = False
        self._framing.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in _FRAMING:
            self._framing.append(value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._moved = True
        if self._is_whole:
            return
        version, self._status = self._parser.get_http_version(), self._parser.get_status_code()
        if version not in _VERSIONS or self._status == _SWITCHING:
            raise Broken("its answer is not HTTP/1.0 or 1.1, or switches to another protocol")
        if len(self._framing) > 1 or (self._framing and not _is_plain(self._framing[0])):
            raise Broken("its answer has an unsupported transfer coding, or states its length twice")
        self._has_head = self._status >= _FIRST_FINAL

    def on_chunk_header(self) -> None:
        self._moved = True

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if not self._is_whole:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._has_head and not self._is_whole:
            self._is_whole, self.keeps = True, self._parser.should_keep_alive()


def _is_plain(framing: bytes) -> bool:
    """Whether this is a length, or the one coding that only marks the end."""
    return framing.isdigit() or framing.lower() == b"chunked"


def _refused(error: Exception) -> Broken:
    """Why reading ended: what was raised meanwhile, or that it is not HTTP."""
    cause = error.__context__
    return cause if isinstance(cause, Broken) else Broken(f"its answer is not valid HTTP: {error}")


_PORTS: Final = {"http": 80, "https": 443}


class Route(Struct, frozen=True):
    """The straight way to a server."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    requests: Requests


def route_to(address: Address) -> Route:
    """The straight way to the server at an address."""
    import httptools  # noqa: F401 - replies need it, and to miss it then would be late

    parts = urlsplit(address.url)
    host, usual = parts.hostname or "", _PORTS[parts.scheme]
    if not host.isascii():
        import httpx

        host = httpx.URL(address.url).raw_host.decode()
    port = parts.port or usual
    named = f"[{host}]" if ":" in host else host
    requests = Requests(named if port == usual else f"{named}:{port}", parts.path.rstrip("/"), address.key)
    return Route(host, port, _tls() if parts.scheme == "https" else None, requests)


def _tls() -> ssl.SSLContext:
    """Trust whom httpx trusts: the authorities of certifi, or those that SSL_CERT_FILE or SSL_CERT_DIR names."""
    import httpx

    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
