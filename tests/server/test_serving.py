"""`fairlead serve` as a process: where it listens, whom it lets in, and how it leaves."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.running import PATIENCE, Folder, Program, folders, until

pytestmark = pytest.mark.slow

TASK = b'{"task_type": "echo"}'
HEADERS = {"content-type": "application/json"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield from folders(tmp_path)


class Caller:
    """A connection to a server."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self.address = parts.hostname, parts.port
        if context is None:
            self.connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        else:
            self.connection = http.client.HTTPSConnection(*self.address, timeout=PATIENCE, context=context)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[http.client.HTTPResponse, Any]:
        self.connection.request(method, path, body or None, (HEADERS if body else {}) | headers)
        response = self.connection.getresponse()
        data = response.read()
        return response, json.loads(data) if data.startswith(b"{") else data

    def submit(self, **headers: str) -> tuple[http.client.HTTPResponse, Any]:
        return self.call("POST", "/api/v1/tasks", TASK, **headers)


def url_of(program: Program) -> str:
    (line,) = program.find('"url"')
    url: str = json.loads(line)["url"]
    return url


def is_deaf(address: tuple[str, int]) -> bool:
    """Whether nobody listens there any more."""
    try:
        socket.create_connection(address, timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        # It stopped to listen just between: the next look will tell.
        return False
    return False


# Where it listens


def test_it_says_where_it_is_and_leaves_when_asked(folder: Folder) -> None:
    with folder.start("serve", "--port", "0") as serving:
        (line,) = serving.find("  http://127.0.0.1:")
        with Caller(line.strip()) as caller:
            assert caller.address[1] != 0
            response, created = caller.submit()
        assert response.status == 201 and created["status"] == "queued"
        assert response.getheader("server") is None
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0
    assert [task.spec.type for task in folder.tasks()] == ["echo"]


def test_a_port_that_is_taken_is_one_clear_line(folder: Folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = folder.run("serve", "--port", str(port))
    assert ended.code == 2 and ended.error.startswith(f"port {port} on 127.0.0.1 is in use")


def test_beyond_loopback_it_needs_a_key_or_a_word(folder: Folder) -> None:
    ended = folder.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert ended.code == 2 and "serving on 0.0.0.0 needs an API key" in ended.error and "--insecure" in ended.error
    with folder.start("serve", "--host", "0.0.0.0", "--port", "0", "--insecure", "--json") as serving:
        serving.find("without API keys: anybody")
        with Caller(url_of(serving)) as caller:
            assert caller.submit()[0].status == 201
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0
    key = folder.quick("keys", "create", "web", "--roles", "submit", "--json").json["key"]
    with folder.start("serve", "--host", "0.0.0.0", "--port", "0", "--json") as serving:
        with Caller(url_of(serving)) as caller:
            assert caller.submit()[0].status == 401
            assert caller.submit(authorization=f"Bearer {key}")[0].status == 201
        serving.send(signal.SIGINT)
        assert serving.wait() == 0


def test_a_path_that_cannot_be_is_one_clear_line(folder: Folder) -> None:
    ended = folder.run("serve", "--port", "0", "--root-path", "fairlead")
    assert ended.code == 2 and "root_path cannot be 'fairlead'" in ended.error


def test_no_password_or_key_is_in_what_it_says(folder: Folder) -> None:
    ended = folder.run("serve", "--port", "0", "--store", "postgresql://me:hunter2@127.0.0.1:1/tasks?connect_timeout=1")
    assert ended.code in (1, 2) and "hunter2" not in ended.err + ended.out
    key = folder.quick("keys", "create", "web", "--roles", "read", "--json").json["key"]
    with folder.start("serve", "--port", "0", "--json", "--log-level", "debug") as serving:
        with Caller(url_of(serving)) as caller:
            for sent in (key, f"{key}x"):
                response, problem = caller.submit(authorization=f"Bearer {sent}")
                assert response.status in (401, 403) and key not in str(problem)
            assert caller.call("GET", f"/docs?key={key}")[0].status < 500
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0
    assert [line for line in serving.lines if key.rpartition("_")[2] in line] == []


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate of our own for 127.0.0.1, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=fairlead test", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_with_a_certificate_it_speaks_tls(folder: Folder, certificate: tuple[str, str]) -> None:
    cert, private = certificate
    text = folder.quick("keys", "create", "web", "--roles", "read", "--json").json["key"]
    with folder.start("serve", "--port", "0", "--cert", cert, "--key", private, "--json") as serving:
        url = url_of(serving)
        assert url.startswith("https://127.0.0.1:")
        with Caller(url, ssl.create_default_context(cafile=cert)) as caller:
            response, _ = caller.call("POST", "/api/v1/session", json.dumps({"key": text}).encode())
        assert response.status == 201
        assert "; Secure" in (response.getheader("set-cookie") or "")
        assert (response.getheader("strict-transport-security") or "").startswith("max-age=")
        with pytest.raises((http.client.HTTPException, OSError)), Caller(url) as plain:
            plain.call("GET", "/docs")
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0


# How it leaves


class Load:
    """Callers who submit one task after the other, each on one connection, until they are told that it ends."""

    def __init__(self, url: str, callers: int) -> None:
        self._url = url
        self._pool = ThreadPoolExecutor(callers)
        self.answered = threading.Semaphore(0)
        self._calls: list[Future[list[str]]] = [self._pool.submit(self._run) for _ in range(callers)]

    def _run(self) -> list[str]:
        ids: list[str] = []
        with Caller(self._url) as caller:
            while True:
                response, created = caller.submit()
                assert response.status == 201, created
                ids.append(created["task_id"])
                self.answered.release()
                if response.getheader("connection") == "close":
                    return ids

    def ids(self) -> set[str]:
        """What was answered; raises what any of them met."""
        with self._pool:
            return {identity for call in self._calls for identity in call.result(PATIENCE)}


def test_leaving_under_load_cuts_no_request_and_loses_no_task(folder: Folder) -> None:
    with folder.start("serve", "--port", "0", "--json") as serving:
        load = Load(url_of(serving), callers=8)
        for _ in range(50):
            assert load.answered.acquire(timeout=PATIENCE)
        serving.send(signal.SIGTERM)
        answered = load.ids()
        assert serving.wait() == 0
    assert answered == {task.id for task in folder.tasks()}


def accepted_half(address: tuple[str, int]) -> socket.socket:
    """A connection with a request that the server has accepted and whose body it waits for."""
    connection = socket.create_connection(address, timeout=PATIENCE)
    connection.sendall(
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(TASK)
    )
    assert connection.recv(1000).startswith(b"HTTP/1.1 100")
    return connection


def test_an_accepted_request_is_finished_though_nobody_else_is_let_in(folder: Folder) -> None:
    with folder.start("serve", "--port", "0", "--json") as serving:
        address = Caller(url_of(serving)).address
        with accepted_half(address) as connection:
            serving.send(signal.SIGTERM)
            until(lambda: is_deaf(address))
            connection.sendall(TASK)
            answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 201") and b"connection: close" in answer.lower()
        assert serving.wait() == 0
    assert len(folder.tasks()) == 1


def test_a_second_signal_cuts_off_what_is_left(folder: Folder) -> None:
    with folder.start("serve", "--port", "0", "--json") as serving:
        address = Caller(url_of(serving)).address
        with accepted_half(address) as connection:
            serving.send(signal.SIGTERM)
            until(lambda: is_deaf(address))
            serving.send(signal.SIGTERM)
            assert serving.wait() == 0
            assert not _rest_of(connection).startswith(b"HTTP/1.1 201")


def _rest_of(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def test_long_polls_return_when_it_leaves(folder: Folder) -> None:
    with folder.start("serve", "--port", "0", "--json", "--drain-seconds", "25") as serving:
        url = url_of(serving)
        with Caller(url) as waiting, Caller(url) as polling, Caller(url) as other:
            created = other.submit()[1]
            worker = other.call("POST", "/internal/workers/register", b'{"queues": ["empty"]}')[1]["worker_id"]
            waiting.connection.request("GET", f"/api/v1/tasks/{created['task_id']}?wait=20")
            polling.connection.request("POST", f"/internal/workers/{worker}/poll", b'{"wait_seconds": 20}', HEADERS)
            # The server has read those requests by the time it answers one that was sent after them.
            assert other.call("GET", "/docs")[0].status == 200
            began = time.monotonic()
            serving.send(signal.SIGTERM)
            response = waiting.connection.getresponse()
            assert response.status == 200 and json.loads(response.read())["status"] == "queued"
            response = polling.connection.getresponse()
            assert response.status == 200 and json.loads(response.read())["tasks"] == []
            assert time.monotonic() - began < 15, "they came back before their time"
        assert serving.wait() == 0
