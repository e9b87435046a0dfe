"""The webhook handler, against real HTTP servers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import msgspec
import pytest

from fairlead.core.retry import Reject, Retry
from fairlead.worker.builtin.outbound import Dialler
from fairlead.worker.builtin.webhook import BODY_LIMIT, Sender, WebhookAnswer, retry_after
from tests.worker.builtin.servers import HOST, Certificate, HttpServer, Request, closed_port, silent_port

PUBLIC = "93.184.215.14"


def answering(status: str = "200 OK", body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def receiver(*answers: bytes) -> Iterator[HttpServer]:
    """A server that gives these answers, one after the other."""
    waiting = list(answers)
    with HttpServer(lambda _: waiting.pop(0)) as server:
        yield server


def sender(timeout: float = 10) -> Sender:
    """A sender that may reach the test's servers."""
    return Sender(allow_private=True, allow_http=True, timeout=timeout)


def deliver(*answers: bytes) -> tuple[WebhookAnswer, list[Request]]:
    with receiver(*answers) as server:
        return sender().webhook(f"http://127.0.0.1:{server.port}/hook"), server.requests


# Requests


def test_the_body_is_sent_as_json_to_the_path_of_the_url() -> None:
    with receiver(answering(body=b"thanks")) as server:
        url = f"http://127.0.0.1:{server.port}/hook/ü?a=b"
        answer = sender().webhook(url, {"n": 1, "text": "ü"}, headers={"X-Token": "t"})

    (request,) = server.requests
    assert answer == WebhookAnswer(200, "thanks")
    assert request.line == "POST /hook/%C3%BC?a=b HTTP/1.1"
    assert request.body == '{"n":1,"text":"ü"}'.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["x-token"] == "t"
    assert request.headers["user-agent"].startswith("fairlead/")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_body_goes_with_every_method_that_carries_one(method: str) -> None:
    with receiver(answering()) as server:
        sender().webhook(f"http://127.0.0.1:{server.port}", [1], method)  # type: ignore[arg-type]

    assert (server.requests[0].line.split()[0], server.requests[0].body) == (method, b"[1]")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_without_a_body_there_is_no_content_type(method: str) -> None:
    with receiver(answering()) as server:
        sender().webhook(f"http://127.0.0.1:{server.port}", method=method)  # type: ignore[arg-type]

    assert "content-type" not in server.requests[0].headers


def test_the_users_content_type_wins() -> None:
    with receiver(answering()) as server:
        url = f"http://127.0.0.1:{server.port}"
        sender().webhook(url, {}, headers={"Content-Type": "application/cloudevents+json"})

    assert server.requests[0].headers["content-type"] == "application/cloudevents+json"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_where_none_can_be_is_refused(method: str) -> None:
    with pytest.raises(Reject, match="carries no body"):
        sender().webhook("https://example.com", {}, method)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"X-A": "a\r\nX-B: b"}, "value of header X-A"),
        ({"X-A": "a\nb"}, "value of header X-A"),
        ({"X-A": "a\0"}, "value of header X-A"),
        ({"X-A": "€"}, "value of header X-A"),
        ({"X-A\r\nX-B": "b"}, "header name"),
        ({"X A": "a"}, "header name"),
        ({"": "a"}, "header name"),
        ({"Ü": "a"}, "header name"),
        ({"Host": "inside.example"}, "header Host"),
        ({"content-length": "0"}, "header content-length"),
        ({"Transfer-Encoding": "chunked"}, "header Transfer-Encoding"),
    ],
)
def test_headers_that_could_forge_a_request_are_refused(headers: dict[str, str], says: str) -> None:
    with pytest.raises(Reject, match=says):
        sender().webhook("https://example.com", headers=headers)


# Answers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_delivered(status: int) -> None:
    answer, _ = deliver(answering(f"{status} Fine"))

    assert answer == WebhookAnswer(status, "")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_retried(status: int) -> None:
    with pytest.raises(Retry, match=f"answered {status} Later: try again") as raised:
        deliver(answering(f"{status} Later", b"try again"))

    assert raised.value.after is None


@pytest.mark.parametrize("status", [300, 304, 400, 401, 403, 404, 405, 410, 413, 422, 451, 600])
def test_what_will_not_pass_fails_for_good(status: int) -> None:
    with pytest.raises(Reject, match=f"answered {status} No"):
        deliver(answering(f"{status} No"))


def test_a_refusal_does_not_tell_the_path_of_the_url() -> None:
    with receiver(answering("404 No")) as server, pytest.raises(Reject) as raised:
        sender().webhook(f"http://127.0.0.1:{server.port}/services/secret?token=secret")

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("999999999999", 3600.0),
        (formatdate(1_000_060, usegmt=True), 60.0),
        (formatdate(999_000, usegmt=True), 0.0),
        (formatdate(9_000_000, usegmt=True), 3600.0),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Mon, 99 Foo 99999 99:99:99 GMT", None),
    ],
)
def test_retry_after_is_understood_and_capped(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=1_000_000.0) == seconds


def test_retry_after_is_honoured() -> None:
    with pytest.raises(Retry) as raised:
        deliver(answering("429 Slow down", b"", "Retry-After: 7"))

    assert raised.value.after == 7.0


@pytest.mark.parametrize("length", [BODY_LIMIT - 1, BODY_LIMIT, BODY_LIMIT + 1, 10 * BODY_LIMIT])
def test_only_the_beginning_of_a_large_body_is_kept(length: int) -> None:
    answer, _ = deliver(answering(body=b"x" * length))

    assert answer.body == "x" * min(length, BODY_LIMIT)
    assert answer.truncated == (length > BODY_LIMIT)


def test_a_body_without_end_is_not_waited_for() -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * (BODY_LIMIT + 1)

    assert deliver(endless)[0].truncated


@pytest.mark.parametrize("body", [b"\0" * BODY_LIMIT, b"\xff" * BODY_LIMIT, b'"' * BODY_LIMIT])
def test_a_kept_body_is_no_larger_as_json(body: bytes) -> None:
    answer, _ = deliver(answering(body=body))

    assert len(msgspec.json.encode(answer.body)) <= BODY_LIMIT + 2
    assert answer.truncated


def test_a_chunked_body_is_understood() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

    assert deliver(chunked)[0] == WebhookAnswer(200, "abcde")


def test_a_body_that_breaks_off_was_delivered_all_the_same() -> None:
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz"

    assert deliver(broken)[0] == WebhookAnswer(200, "abc", truncated=True)


@pytest.mark.parametrize("answer", [b"", b"SMTP ready\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, b"HTTP/1.1 2"])
def test_an_answer_that_is_not_http_is_retried(answer: bytes) -> None:
    with pytest.raises(Retry, match="could not be asked"):
        deliver(answer)


# Connections


def test_a_refused_connection_is_retried() -> None:
    with pytest.raises(Retry, match="ConnectionRefusedError"):
        sender().webhook(f"http://127.0.0.1:{closed_port()}/")


def test_a_name_that_does_not_resolve_is_retried() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(Retry, match="gaierror"):
        Sender(dialler=Dialler(allow_private=False, resolve=resolve)).webhook("https://nowhere.example/")


def test_a_receiver_that_says_nothing_is_timed_out_and_retried() -> None:
    with silent_port() as port, pytest.raises(Retry, match="did not answer in time"):
        sender(timeout=0.05).webhook(f"http://127.0.0.1:{port}/")


def test_the_task_may_choose_its_timeout() -> None:
    with silent_port() as port, pytest.raises(Retry, match="did not answer in time"):
        sender().webhook(f"http://127.0.0.1:{port}/", timeout=0.05)


def test_a_receiver_that_drips_is_timed_out_as_a_whole() -> None:
    class Dripping(socket.socket):
        """Has one more byte every millisecond, so that no single wait is ever too long."""

        def recv_into(self, buffer: object, nbytes: int = 0, flags: int = 0) -> int:
            time.sleep(0.001)
            memoryview(buffer)[0:1] = b"x"  # type: ignore[arg-type]
            return 1

        def sendall(self, data: object, flags: int = 0) -> None:
            pass

    dialler = Dialler(allow_private=True, resolve=lambda *_: [PUBLIC], connect=lambda *_: Dripping())

    with pytest.raises(Retry, match="did not answer in time"):
        Sender(allow_http=True, timeout=0.02, dialler=dialler).webhook("http://example.com/")


# TLS


def test_https_is_verified_against_the_name_in_the_url(certificate: Certificate) -> None:
    def dialler() -> Dialler:
        return Dialler(allow_private=True, resolve=lambda *_: ["127.0.0.1"], tls=certificate.client)

    with HttpServer(lambda _: answering(), certificate.server) as server:
        for host in (HOST, f"{HOST}.", "127.0.0.1"):
            assert Sender(dialler=dialler()).webhook(f"https://{host}:{server.port}/") == WebhookAnswer(200, "")
        with pytest.raises(Retry, match="certificate verify failed: Hostname mismatch"):
            Sender(dialler=dialler()).webhook(f"https://other.example:{server.port}/")


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Certificate) -> None:
    with (
        HttpServer(lambda _: answering(), certificate.server) as server,
        pytest.raises(Retry, match="certificate verify failed"),
    ):
        sender().webhook(f"https://127.0.0.1:{server.port}/")

    assert not server.requests
