"""The `webhook` handler: one HTTP request, and what its answer means for the task.

Delivered means a 2xx status. What may pass (timeouts, refused connections, 408, 425, 429, 5xx) is retried; every other
answer fails the task for good.
"""

from __future__ import annotations

import email.utils
import http.client
import io
import re
import socket
import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urljoin

import msgspec
from msgspec import Meta, Struct

from fairlead._version import __version__
from fairlead.core.errors import InvalidSettings
from fairlead.core.retry import Reject, Retry
from fairlead.worker.builtin.outbound import Dialler, Target, parse_target, remaining

BODY_LIMIT: Final = 64 * 1024
"""How much of the answer's body is read and kept, in bytes."""
REDIRECT_LIMIT: Final = 5
RETRY_AFTER_LIMIT: Final = 3600.0
"""The longest wait that a receiver may ask for, in seconds."""

_MAY_PASS: Final = frozenset({408, 425, 429})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS: Final = frozenset({
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_HARMLESS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})

Method = Literal["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"]


class WebhookAnswer(Struct, frozen=True):
    """What the receiver answered."""

    status: int
    body: str
    truncated: bool = False
    """Whether the body went on."""


class _Request(Struct, frozen=True):
    method: str
    target: Target
    headers: dict[str, str]
    body: bytes | None


class Sender:
    """Sends webhooks under the operator's settings."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        allow_http: bool = False,
        timeout: float = 30.0,
        dialler: Dialler | None = None,
    ) -> None:
        if not 0 < timeout < float("inf"):
            raise InvalidSettings(f"webhook_timeout_seconds {timeout} leaves no time for a webhook; use more than 0")
        self._allow_http = allow_http
        self._timeout = timeout
        self._dialler = dialler or Dialler(allow_private=allow_private)

    def webhook(
        self,
        url: str,
        body: Any = None,
        method: Method = "POST",
        headers: dict[str, str] | None = None,
        timeout: Annotated[float, Meta(gt=0, le=3600)] | None = None,
    ) -> WebhookAnswer:
        """Send a request with `body` as JSON; without a body if it is null.

        `timeout` is in seconds and covers everything, redirects too; the default is webhook_timeout_seconds.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        request = self._request(url, body, method, headers or {})
        for _ in range(REDIRECT_LIMIT + 1):
            outcome = self._exchange(request, deadline)
            if isinstance(outcome, WebhookAnswer):
                return outcome
            request = self._redirected(request, *outcome)
        raise Reject(f"{request.target} redirected more than {REDIRECT_LIMIT} times; use the URL that it ends at")

    def _request(self, url: str, body: Any, method: str, headers: Mapping[str, str]) -> _Request:
        if body is not None and method in ("GET", "HEAD"):
            raise Reject(f"a {method} carries no body; use POST, or leave the body out")
        ours = {"user-agent": f"fairlead/{__version__}", "accept": "*/*"}
        if body is not None:
            ours["content-type"] = "application/json"
        return _Request(
            method=method,
            target=parse_target(url, allow_http=self._allow_http),
            headers=ours | _checked(headers),
            body=None if body is None else msgspec.json.encode(body),
        )

    def _exchange(self, request: _Request, deadline: float) -> WebhookAnswer | tuple[int, str]:
        """The answer to keep, or the status and place of a redirect."""
        target = request.target
        try:
            with self._dialler.dial(target, deadline) as connection:
                return _judge(target, _ask(request, _Channel(connection, deadline)))
        except TimeoutError:
            raise Retry(f"{target} did not answer in time; make it answer sooner or raise the timeout") from None
        except (OSError, http.client.HTTPException) as error:
            raise Retry(f"{target} could not be asked: {type(error).__name__}: {error}") from None

    def _redirected(self, request: _Request, status: int, location: str) -> _Request:
        # The place comes from a header as bytes read as Latin-1; bytes above ASCII are UTF-8 in practice.
        location = location.encode("latin-1").decode("utf-8", "replace").strip()
        here = request.target
        try:
            url = urljoin(f"{here}{here.path}", location)
        except ValueError as error:
            raise Reject(f"{here} redirects to what is not valid as a URL: {error}") from None
        target = parse_target(url, allow_http=self._allow_http)
        if (here.scheme, target.scheme) == ("https", "http"):
            raise Reject(f"{here} redirects to {target}: what was sent under TLS is not sent again without; use https")
        headers, method, body = request.headers, request.method, request.body
        if target.origin != here.origin:
            # Any header may be a credential (X-Api-Key, Cookie, Authorization): another origin gets none of them.
            headers = {name: value for name, value in headers.items() if name in _HARMLESS}
        if status == 303 and method != "HEAD":
            # 301 and 302 keep the method, unlike in a browser: a POST that became a GET would look delivered when
            # nothing was.
            method, body = "GET", None
            headers = {name: value for name, value in headers.items() if name != "content-type"}
        return _Request(method, target, headers, body)


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers by their names in lower case."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise Reject(f"header name {name!r} is not valid; use letters, digits and dashes")
        if name.lower() in _OURS:
            raise Reject(f"header {name} is set by fairlead itself; leave it out")
        if not _VALUE.fullmatch(value):
            raise Reject(f"the value of header {name} has a line break, control or non-Latin character; leave it out")
    return {name.lower(): value for name, value in headers.items()}


def _ask(request: _Request, channel: _Channel) -> http.client.HTTPResponse:
    client = http.client.HTTPConnection(request.target.host, request.target.port)
    client.auto_open = 0  # never connect by itself: the connection is made, to an address that was checked
    client.sock = channel
    client.putrequest(request.method, request.target.path, skip_host=True, skip_accept_encoding=True)
    client.putheader("Host", request.target.authority)
    client.putheader("Connection", "close")
    client.putheader("Accept-Encoding", "identity")
    for name, value in request.headers.items():
        client.putheader(name.title(), value)
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        client.putheader("Content-Length", str(len(request.body or b"")))
    client.endheaders(request.body)
    return client.getresponse()


def _judge(target: Target, response: http.client.HTTPResponse) -> WebhookAnswer | tuple[int, str]:
    status, place = response.status, response.headers.get("Location")
    if status in _REDIRECTS and place is not None:
        return status, place
    answer = _read(response)
    if 200 <= status < 300:
        return answer
    says = f"{target} answered {status} {response.reason}".rstrip() + (f": {answer.body[:500]}" if answer.body else "")
    if status in _MAY_PASS or 500 <= status < 600:
        raise Retry(says, after=retry_after(response.headers.get("Retry-After"), time.time()))
    raise Reject(says)


def _read(response: http.client.HTTPResponse) -> WebhookAnswer:
    """The beginning of the body. The status has come, so a body that breaks off changes nothing."""
    body, truncated = b"", False
    try:
        while len(body) <= BODY_LIMIT and (part := response.read1(BODY_LIMIT + 1 - len(body))):
            body += part
    except (OSError, http.client.HTTPException):
        truncated = True
    text = body[:BODY_LIMIT].decode("utf-8", "replace")
    # As JSON a character may take six times its bytes, and a delivered webhook must not fail because its result is
    # too large to be stored.
    while (size := len(msgspec.json.encode(text))) > BODY_LIMIT + 2:
        text, truncated = text[: len(text) * BODY_LIMIT // size], True
    return WebhookAnswer(response.status, text, truncated or len(body) > BODY_LIMIT)


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds that a Retry-After header asks for, at most the limit; None when it says nothing we understand."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_LIMIT)
    try:
        wait = email.utils.parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(wait, 0.0), RETRY_AFTER_LIMIT)


class _Channel:
    """As much of a socket as http.client needs, with one deadline for all of it.

    A socket's own timeout starts again with every byte, so a receiver that sends one byte at a time would never be
    timed out.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(remaining(self._deadline))
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._socket, self._deadline))

    def close(self) -> None:
        """Nothing: http.client lets go of a connection before its answer is read."""


class _Reader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(remaining(self._deadline))
        return self._socket.recv_into(buffer)
