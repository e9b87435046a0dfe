"""Real servers on loopback for the handlers under test: HTTP and SMTP, plain or under TLS."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

HOST = "hooks.example"
"""The name in the test certificate."""


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class HttpServer:
    """Answers each request with the bytes that `answer` makes of it, and then closes the connection."""

    def __init__(self, answer: Callable[[Request], bytes], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._answer = answer
        self._tls = tls
        self._server = _Server(("127.0.0.1", 0), self._serve)
        self.port = self._server.server_address[1]

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        with connection, connection.makefile("rb") as stream:
            line = stream.readline().decode().strip()
            headers: dict[str, str] = {}
            while header := stream.readline().decode("latin-1").strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            request = Request(line, headers, stream.read(int(headers.get("content-length", 0))))
            self.requests.append(request)
            connection.sendall(self._answer(request))

    def __enter__(self) -> HttpServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class Mail(NamedTuple):
    sender: str
    recipients: list[str]
    data: str
    under_tls: bool


class SmtpServer:
    """Takes mail; `says` replaces the answer to the commands that start with its keys (`greeting` for the first)."""

    def __init__(self, says: dict[str, str] | None = None, tls: ssl.SSLContext | None = None, *, smtps: bool = False):
        self.mails: list[Mail] = []
        self.commands: list[str] = []
        self._says = {start.lower(): answer for start, answer in (says or {}).items()}
        self._tls = tls
        self._smtps = smtps
        self._server = _Server(("127.0.0.1", 0), self._serve)
        self.port = self._server.server_address[1]

    def _serve(self, connection: socket.socket) -> None:
        under_tls = False
        if self._smtps and self._tls is not None:
            connection, under_tls = self._tls.wrap_socket(connection, server_side=True), True
        stream = connection.makefile("rwb")
        sender, recipients = "", list[str]()

        def say(text: str) -> None:
            if text:
                stream.write(f"{text}\r\n".encode())
                stream.flush()

        say(self._says.get("greeting", "220 ready"))
        while raw := stream.readline():
            command = raw.decode().strip()
            self.commands.append(command)
            verb = command.split(" ")[0].upper()
            scripted = next((said for start, said in self._says.items() if command.lower().startswith(start)), None)
            if scripted == "":
                break  # hang up
            if scripted is not None:
                say(scripted)
            elif verb == "EHLO":
                say("250-me" + ("\r\n250-STARTTLS" if self._tls and not under_tls else "") + "\r\n250 AUTH PLAIN")
            elif verb == "STARTTLS" and self._tls is not None:
                say("220 go on")
                connection, under_tls = self._tls.wrap_socket(connection, server_side=True), True
                stream = connection.makefile("rwb")
            elif verb == "AUTH":
                say("235 welcome")
            elif verb == "MAIL":
                sender = command[len("MAIL FROM:<") :].partition(">")[0]
                say("250 ok")
            elif verb == "RCPT":
                recipients.append(command[len("RCPT TO:<") :].partition(">")[0])
                say("250 ok")
            elif verb == "DATA":
                say("354 go on")
                lines = list(iter(stream.readline, b".\r\n"))
                self.mails.append(
                    Mail(
                        sender,
                        recipients,
                        b"".join(line.removeprefix(b".") for line in lines).decode("ascii"),
                        under_tls,
                    )
                )
                say(self._says.get("end", "250 taken"))
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 ok")
        with contextlib.suppress(OSError):
            stream.close()
        connection.close()

    def __enter__(self) -> SmtpServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


class _Server(socketserver.ThreadingTCPServer):
    """One thread per connection; those that the client breaks off end in silence."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        super().__init__(address, socketserver.BaseRequestHandler)

    def finish_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        with contextlib.suppress(OSError):
            self._serve(request)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Certificate(NamedTuple):
    """A self-signed certificate of HOST and 127.0.0.1, as a server shows it and as a client trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def make_certificate(folder: Path) -> Certificate:
    if shutil.which("openssl") is None:
        reason = "no openssl on PATH to make a test certificate with"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=test", "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1"]
    subprocess.run(
        ["openssl", *made, *name, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return Certificate(server, ssl.create_default_context(cafile=str(certificate)))


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def closed_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
