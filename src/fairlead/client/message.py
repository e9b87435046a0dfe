"""HTTP/1.1 as a client speaks it, without any sending or receiving: requests as bytes, and replies from bytes.

Nearly every reply is framed in one way: a status and a length, on a connection that stays. That is read here. All else
(pieces, a body that ends with its connection, an interim reply, a farewell) is left to h11, which knows all of HTTP.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from fairlead._version import __version__
from fairlead.client.transport import Broken, Reply

_AS_IT_IS: Final = re.sub(r'["#<>\\^`{|}]', "", string.digits + string.ascii_letters + string.punctuation)
"""What a path and a query may have in them unescaped, the sign of an escape among them."""

_HEAD_END: Final = b"\r\n\r\n"
_HEAD_LIMIT: Final = 64 * 1024

_MORE: Final = (
    rb"(?:\r\n(?:connection:[ \t]*keep-alive[ \t]*(?=\r|\Z)"
    rb"|(?![ \t]|connection|transfer-encoding|content-length)[^\r\n]*))*"
)
"""Headers that say nothing of how a reply is framed."""
_COMMON: Final = re.compile(
    rb"HTTP/1\.1 (?!204|304)([2-5]\d\d)[^\r\n]*" + _MORE + rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*" + _MORE,
    re.IGNORECASE,
)


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

    def __init__(self) -> None:
        self.keeps = False
        """Whether the connection can carry another request, once the reply is whole."""
        self._seen = bytearray()
        self._status = self._begins = self._ends = 0
        self._uncommon: _Uncommon | None = None

    def feed(self, data: bytes) -> Reply | None:
        """The reply, once it is whole; `data` is what has arrived, and empty at the end of the connection."""
        if self._uncommon is not None:
            return self._feed_uncommon(self._uncommon, data)
        self._seen += data
        if not self._begins:
            at = self._seen.find(_HEAD_END)
            if at < 0:
                self._check_head(ended=not data)
                return None
            common = _COMMON.fullmatch(self._seen, 0, at)
            if common is None:
                self._uncommon = _Uncommon()
                return self._feed_uncommon(self._uncommon, bytes(self._seen))
            self._status, self._begins = int(common[1]), at + len(_HEAD_END)
            self._ends = self._begins + int(common[2])
        if len(self._seen) < self._ends:
            if not data:
                raise Broken("it hung up in the middle of its answer")
            return None
        # What nobody asked for must not be taken for the answer to what is asked next.
        self.keeps = len(self._seen) == self._ends
        return Reply(self._status, bytes(memoryview(self._seen)[self._begins : self._ends]))

    def _check_head(self, *, ended: bool) -> None:
        """Raise Broken if the head will not come."""
        if ended:
            raise Broken("it hung up without an answer")
        if len(self._seen) > _HEAD_LIMIT:
            raise Broken("what it says is not HTTP")

    def _feed_uncommon(self, uncommon: _Uncommon, data: bytes) -> Reply | None:
        reply = uncommon.feed(data)
        self.keeps = uncommon.keeps
        return reply


class _Uncommon:
    """Reads a reply that may be framed in any way."""

    def __init__(self) -> None:
        import h11

        self.keeps = False
        self._status = 0
        self._pieces: list[bytes] = []
        self._connection = h11.Connection(h11.CLIENT)
        # Which request it was makes no difference to how its reply is framed, but there has to be one.
        self._connection.send(h11.Request(method="GET", target="/", headers=[("host", "-")]))
        self._connection.send(h11.EndOfMessage())

    def feed(self, data: bytes) -> Reply | None:
        """As of `Reading`."""
        import h11

        try:
            self._connection.receive_data(data)
            while True:
                match self._connection.next_event():
                    case h11.Response(status_code=status):
                        self._status = status
                    case h11.Data(data=piece):
                        self._pieces.append(bytes(piece))
                    case h11.EndOfMessage():
                        stays = self._connection.their_state is h11.DONE and self._connection.our_state is h11.DONE
                        self.keeps = stays and self._connection.trailing_data == (b"", False)
                        return Reply(self._status, b"".join(self._pieces))
                    case h11.NEED_DATA:
                        return None
                    case h11.InformationalResponse():
                        continue
                    case _:
                        raise Broken("it speaks of something else than what it was asked")
        except h11.RemoteProtocolError as error:
            raise Broken(f"what it says is not HTTP: {error}") from None
