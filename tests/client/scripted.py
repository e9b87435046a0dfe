"""A server that says what a test has it say, and keeps its connections."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from typing import NamedTuple


class Asked(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256


class Scripted:
    """Answers each request with the bytes that `answer` makes of it; where those are none, it hangs up."""

    def __init__(self, answer: Callable[[Asked], bytes], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Asked] = []
        self.pieces: list[bytes] = []
        """What was read at once when a request came."""
        self.connections: list[socket.socket] = []
        self._answer = answer
        self._tls = tls
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    outer._serve(self.request)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    def hang_up(self) -> None:
        """End all connections."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Scripted:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        self.connections.append(connection)
        with connection:
            while piece := connection.recv(1 << 20):
                self.pieces.append(piece)
                asked = _parsed(piece, connection)
                self.requests.append(asked)
                if not (said := self._answer(asked)):
                    return
                connection.sendall(said)


def _parsed(seen: bytes, connection: socket.socket) -> Asked:
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(1 << 20)
    head, _, body = seen.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(1 << 20)
    return Asked(line, headers, body)


def said(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A reply of the common kind."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body
