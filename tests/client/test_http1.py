"""HTTP as a client speaks it: requests in one piece, and replies however they are framed and cut."""

from __future__ import annotations

import gc
import weakref

import pytest

from fairlead.client.http.http1 import Reading, Requests
from fairlead.client.http.transport import Broken, Reply

OK = b"HTTP/1.1 200 OK\r\n"

REPLIES = {
    "a length": (OK + b"Content-Length: 2\r\nDate: now\r\n\r\nhi", Reply(200, b"hi"), True),
    "a length, spelled otherwise": (b"HTTP/1.1 404\r\ncontent-LENGTH:2 \r\n\r\nhi", Reply(404, b"hi"), True),
    "nothing in it": (b"HTTP/1.1 503 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", Reply(503, b""), True),
    "a connection that stays": (
        OK + b"Server: x\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\nVary: y\r\n\r\nhi", Reply(200, b"hi"), True,
    ),
    "a farewell": (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", Reply(200, b"hi"), False),
    "pieces": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1;x=y\r\ni\r\n0\r\nMore: t\r\n\r\n", Reply(200, b"hi"), True,
    ),
    "an interim reply first": (
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi", Reply(200, b"hi"), True,
    ),
    "no body by its status": (b"HTTP/1.1 204 No Content\r\n\r\n", Reply(204, b""), True),
    "the old version": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", Reply(200, b"hi"), False),
    "a coding with a space behind": (OK + b"Transfer-Encoding: Chunked \r\n\r\n0\r\n\r\n", Reply(200, b""), True),
    "two interim replies, one with a length": (
        b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 103 Hints\r\nContent-Length: 0\r\n\r\n"
        + OK + b"Content-Length: 2\r\n\r\nhi",
        Reply(200, b"hi"), True,
    ),
    "the end of a head in the body": (OK + b"Content-Length: 6\r\n\r\n\r\n\r\nhi", Reply(200, b"\r\n\r\nhi"), True),
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 3, 10_000])
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_read_however_it_is_framed_and_cut(name: str, step: int) -> None:
    text, expected, keeps = REPLIES[name]
    reading = Reading()
    pieces = [text[start : start + step] for start in range(0, len(text), step)]
    *early, last = [reading.feed(piece) for piece in pieces]
    assert (early, last, reading.keeps) == ([None] * (len(pieces) - 1), expected, keeps)


@pytest.mark.parametrize("step", [1, 10_000])
def test_a_reply_may_end_with_its_connection(step: int) -> None:
    reading, text = Reading(), OK + b"Server: x\r\n\r\nhi"
    assert {reading.feed(text[start : start + step]) for start in range(0, len(text), step)} == {None}
    assert (reading.feed(b""), reading.keeps) == (Reply(200, b"hi"), False)


@pytest.mark.parametrize("more", [b"x", OK])
@pytest.mark.parametrize("name", ["a length", "pieces"])
def test_what_nobody_asked_for_is_not_the_next_answer(name: str, more: bytes) -> None:
    text, expected, _ = REPLIES[name]
    reading = Reading()
    assert (reading.feed(text + more), reading.keeps) == (expected, False)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        OK + b"Content-Length: 3\r\n\r\nhi",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nh",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\nhi",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Content-Length: 99999999999999999999\r\n\r\nhi",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK + b"Content-Length: 2\r\n 3\r\n\r\nhi",
        OK + b"Content-Length: +2\r\n\r\nhi",
        OK + b"Content-Length: -2\r\n\r\nhi",
        OK + b"Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"Content-Length : 2\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/2 200\r\ncontent-length: 2\r\n\r\nhi",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_reply_is_refused(text: bytes) -> None:
    reading = Reading()
    with pytest.raises(Broken):
        reading.feed(text) if text else None
        reading.feed(b"")


@pytest.mark.parametrize(
    "begun",
    [b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n1;"],
    ids=["a head", "headers", "trailers", "an extension of a chunk"],
)
def test_what_leads_to_nothing_is_not_read_for_ever(begun: bytes) -> None:
    reading = Reading()
    assert reading.feed(begun or b"HTTP/1.1 200 O") is None
    with pytest.raises(Broken, match="headers are too long"):
        for _ in range(100):
            reading.feed(b"x: y\r\n" * 1_000 if begun.endswith(b"\r\n") else b"x" * 6_000)


def test_a_body_in_small_pieces_may_be_large() -> None:
    reading = Reading()
    reading.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(30_000):
        assert reading.feed(b"1\r\nx\r\n") is None
    assert reading.feed(b"0\r\n\r\n") == Reply(200, b"x" * 30_000)


def test_a_reply_leaves_nothing_to_the_garbage_collector() -> None:
    reading = Reading()
    reading.feed(REPLIES["a length"][0])
    gone = weakref.ref(reading)
    gc.disable()
    try:
        del reading
        assert gone() is None
    finally:
        gc.enable()


def test_a_request_is_written_whole() -> None:
    requests = Requests("host:1", "/at", "secret")
    head, _, body = requests.write("POST", "/x", b"{}", {"a": "b c&", "d": "é"}).partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    assert (line, body) == ("POST /at/x?a=b+c%26&d=%C3%A9 HTTP/1.1", b"{}")
    assert headers[0] == "host: host:1" and headers[2:] == [
        "accept: application/json", "authorization: Bearer secret", "content-type: application/json",
        "content-length: 2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "said"), [("GET", False), ("DELETE", False), ("POST", True), ("PUT", True), ("PATCH", True)]
)
def test_a_request_without_a_body_says_so_where_one_could_be(method: str, said: bool) -> None:
    text = Requests("host", "", None).write(method, "/x", None, None)
    assert text.endswith(b"\r\n\r\n") and (b"\r\ncontent-length: 0\r\n" in text) is said


def test_nothing_in_a_path_ends_the_line() -> None:
    text = Requests("host", "", None).write("GET", "/x/a b\r\nevil: 1\r\n\r\nü%20\x7f#?q=1", None, None)
    assert text.startswith(b"GET /x/a%20b%0D%0Aevil:%201%0D%0A%0D%0A%C3%BC%20%7F%23?q=1 HTTP/1.1\r\n")
