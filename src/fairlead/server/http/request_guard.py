"""What the head of a request must be like, whichever way the request goes on from there.

A proxy and a server that read the same bytes differently can be made to disagree about where one request ends and the
next begins, or whom it calls. So a head that others might read otherwise is refused, though it could be made sense of.
"""

from __future__ import annotations

import functools
import re
from typing import Final, TypeAlias

from fairlead.server.http.problems import Refusal

MOST_BYTES: Final = 32 * 1024
"""The longest head, and the most that is read of anything else that is neither a head nor a body."""
MOST_HEADERS: Final = 100

Lines: TypeAlias = list[tuple[bytes, bytes]]
"""The headers of a request in their order, by their names in lower case."""

_VERSIONS: Final = ("1.1", "1.0")
_ONCE: Final = (b"host", b"authorization", b"content-length", b"transfer-encoding")
"""The headers of which the first and the last could mean different things."""

_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~%-]+)(?::[0-9]{0,5})?", re.ASCII)
_LONGEST_HOST: Final = 300
_PATH: Final = re.compile(rb"/[!\"$-~]*")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)([/?][!\"$-~]*)?", re.IGNORECASE)


def check_head(version: str, headers: Lines) -> dict[bytes, bytes]:
    """The headers by name; refused when a head with them can be read in more than one way."""
    said = dict(headers)
    if len(headers) > MOST_HEADERS:
        raise too_large(f"the request has more than {MOST_HEADERS} headers")
    if len(said) < len(headers):
        _check_repeated(headers)
    if version not in _VERSIONS:
        raise _refused(f"HTTP/{version} is not supported; use HTTP/1.1")
    if not _is_host(said.get(b"host", b"")):
        raise _refused("the request must have one Host header that names a host; send one")
    if b"transfer-encoding" in said:
        _check_coding(version, said)
    if b"content-encoding" in said:
        raise Refusal(
            "encoded-body",
            "the server does not decompress bodies; send the body as it is, without Content-Encoding",
            remedy="send the body as it is, without Content-Encoding",
            headers=(("accept-encoding", "identity"),),
        )
    return said


def path_in(target: bytes, method: bytes, headers: Lines) -> bytes:
    """The path of a target, with its query; if the target names a host, that is called, whatever Host says."""
    if _PATH.fullmatch(target) or target == b"*":
        return target
    if method == b"CONNECT":
        raise no_tunnels()
    parts = _ABSOLUTE.fullmatch(target)
    if parts is None or not _is_host(parts[1]):
        raise _refused("the target of the request is neither a path nor a URL; send a path")
    headers[:] = [(name, parts[1] if name == b"host" else value) for name, value in headers]
    path = parts[2] or b"/"
    return path if path.startswith(b"/") else b"/" + path


def check_websocket(version: str, method: bytes, said: dict[bytes, bytes], *, alone: bool) -> None:
    """Refuse a request for a WebSocket that is more than that, or behind one that is not answered yet."""
    has_body = b"transfer-encoding" in said or said.get(b"content-length", b"0") != b"0"
    if version != "1.1" or method != b"GET" or has_body or not alone:
        raise _refused(
            "a WebSocket is opened by an HTTP/1.1 GET without a body, after all earlier requests are answered"
        )


def check_size(target: bytes, headers: Lines) -> None:
    """Refuse a head of too many bytes."""
    if len(target) + sum(len(name) + len(value) + 4 for name, value in headers) > MOST_BYTES:
        raise too_large()


def too_large(what: str = f"the headers of the request have more than {MOST_BYTES:,} bytes") -> Refusal:
    """The refusal of a head that is too large."""
    return Refusal("head-too-large", f"{what}; send fewer or shorter headers", remedy="send fewer or shorter headers")


def no_trailers() -> Refusal:
    """The refusal of headers behind a body: nobody here reads them, and elsewhere they may count."""
    return _refused("headers after the body (trailers) are not supported; send them before it")


def no_tunnels() -> Refusal:
    """The refusal of CONNECT."""
    return Refusal("not-supported", "tunnels (CONNECT) are not supported; call the other server directly")


def not_http() -> Refusal:
    """The refusal of what cannot be read at all."""
    return _refused("this is not an HTTP/1.1 request; send one, or use TLS only with a server that has a certificate")


def _check_repeated(headers: Lines) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            shown = name.decode().title()
            raise _refused(f"the request has more than one {shown} header; send one")


def _check_coding(version: str, said: dict[bytes, bytes]) -> None:
    if b"content-length" in said or version != "1.1":
        raise _refused("Transfer-Encoding needs HTTP/1.1 and excludes Content-Length; send one of the two")
    if said[b"transfer-encoding"] != b"chunked":
        raise Refusal(
            "not-supported",
            "the only supported transfer coding is `chunked`; send the body as it is",
            remedy="send the body as it is",
        )


def _is_host(authority: bytes) -> bool:
    return len(authority) <= _LONGEST_HOST and _looks_like_host(authority)


@functools.lru_cache(maxsize=1024)
def _looks_like_host(authority: bytes) -> bool:
    return _HOST.fullmatch(authority) is not None


def _refused(detail: str) -> Refusal:
    return Refusal("invalid-request", detail, remedy=detail.partition("; ")[2] or None)
