"""Where the webhook handler follows a redirect, and what it takes along."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

import pytest

from fairlead.core.retry import Reject, Retry
from fairlead.worker.builtin.outbound import Dialler
from fairlead.worker.builtin.webhook import Sender, WebhookAnswer
from tests.worker.builtin.servers import Certificate, HttpServer, Request

PUBLIC = {"hooks.example": "93.184.215.14", "other.example": "93.184.215.15", "plain.example": "93.184.215.16"}
INSIDE = {"inside.example": "10.0.0.1", "localhost": "127.0.0.1", "metadata.example": "169.254.169.254"}


def redirect(place: str, status: int = 307) -> bytes:
    return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere"


class Internet:
    """Names with public and private addresses, all of which lead to one server of the test."""

    def __init__(self, answer: Callable[[Request], bytes]) -> None:
        self.server = HttpServer(answer)
        self.reached: list[str] = []
        self.names: dict[str, list[str]] = {name: [address] for name, address in (PUBLIC | INSIDE).items()}

    def resolve(self, host: str, port: int) -> list[str]:
        answers = self.names.get(host, [host])
        return [answers.pop(0) if len(answers) > 1 else answers[0]]

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.reached.append(address)
        return socket.create_connection(("127.0.0.1", self.server.port), timeout)

    def send(self, url: str = "http://hooks.example/start", **options: object) -> WebhookAnswer:
        dialler = Dialler(allow_private=False, resolve=self.resolve, connect=self.connect)
        with self.server:
            return Sender(allow_http=True, dialler=dialler).webhook(url, **options)  # type: ignore[arg-type]


def leading(place: str, status: int = 307) -> Internet:
    """An internet whose first answer redirects to this place, and where everything else is fine."""
    return Internet(lambda request: redirect(place, status) if "/start" in request.line else OK)


@pytest.mark.parametrize(
    ("place", "line", "host"),
    [
        ("/next?a=b", "POST /next?a=b HTTP/1.1", "hooks.example"),
        ("next", "POST /next HTTP/1.1", "hooks.example"),
        ("//other.example/next", "POST /next HTTP/1.1", "other.example"),
        ("http://other.example:8080/next#part", "POST /next HTTP/1.1", "other.example:8080"),
        ("/ü", "POST /%C3%BC HTTP/1.1", "hooks.example"),
    ],
)
def test_a_redirect_is_followed(place: str, line: str, host: str) -> None:
    internet = leading(place)

    assert internet.send(body=1) == WebhookAnswer(200, "here")
    _, last = internet.server.requests
    assert (last.line, last.headers["host"]) == (line, host)


@pytest.mark.parametrize(
    "place",
    [
        "http://inside.example/",
        "http://localhost/",
        "http://metadata.example/latest/meta-data/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "//10.0.0.1/",
    ],
)
def test_a_redirect_to_a_private_address_is_refused(place: str) -> None:
    internet = leading(place)

    with pytest.raises(Reject, match="webhook_allow_private"):
        internet.send()

    assert internet.reached == [PUBLIC["hooks.example"]]


def test_a_name_that_turns_private_between_two_hops_is_refused() -> None:
    internet = leading("/next")
    internet.names["hooks.example"] = [PUBLIC["hooks.example"], "127.0.0.1"]

    with pytest.raises(Reject, match="loopback"):
        internet.send()

    assert internet.reached == [PUBLIC["hooks.example"]]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("ftp://other.example/", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("http://ada:pw@other.example/", "user name"),
        ("http://other.example:99999/", "not valid"),
        ("http://[other/", "not valid"),
        ("/a b", "space"),
    ],
)
def test_a_redirect_to_what_is_no_valid_url_is_refused(place: str, says: str) -> None:
    with pytest.raises(Reject, match=re.escape(says)):
        leading(place).send()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_method_and_body_are_kept(status: int) -> None:
    internet = leading("/next", status)

    internet.send(body={"a": 1}, method="PUT")

    first, last = internet.server.requests
    assert (last.line, last.body) == ("PUT /next HTTP/1.1", first.body)
    assert last.headers["content-type"] == "application/json"


@pytest.mark.parametrize(("method", "after"), [("POST", "GET"), ("GET", "GET"), ("HEAD", "HEAD")])
def test_see_other_is_looked_at_and_gets_nothing(method: str, after: str) -> None:
    internet = leading("/next", 303)

    internet.send(method=method, body=1 if method == "POST" else None)

    last = internet.server.requests[-1]
    assert (last.line, last.body) == (f"{after} /next HTTP/1.1", b"")
    assert "content-type" not in last.headers


SECRETS = {"Authorization": "Bearer t", "Cookie": "a=b", "X-Api-Key": "k"}


def test_the_same_origin_gets_all_headers_again() -> None:
    internet = leading("/next")

    internet.send(body=1, headers=SECRETS)

    assert {name.lower() for name in SECRETS} <= set(internet.server.requests[-1].headers)


@pytest.mark.parametrize("place", ["http://other.example/", "http://hooks.example:8080/"])
def test_another_origin_gets_no_credentials(place: str) -> None:
    internet = leading(place)

    internet.send(body=1, headers={**SECRETS, "Accept": "text/plain"})

    last = internet.server.requests[-1].headers
    assert not {name.lower() for name in SECRETS} & set(last)
    assert (last["accept"], last["content-type"]) == ("text/plain", "application/json")


def test_credentials_do_not_come_back_on_the_way_back() -> None:
    places = {"/start": "http://other.example/there", "/there": "http://hooks.example/back"}
    internet = Internet(lambda request: redirect(places[at]) if (at := request.line.split()[1]) in places else OK)

    internet.send(headers=SECRETS)

    assert "authorization" not in internet.server.requests[-1].headers


def test_five_redirects_are_followed_and_no_more() -> None:
    def answer(request: Request) -> bytes:
        left = int(request.line.split("/")[1].split()[0])
        return redirect(f"/{left - 1}") if left else OK

    assert Internet(answer).send("http://hooks.example/5").status == 200
    internet = Internet(answer)
    with pytest.raises(Reject, match="redirected more than 5 times"):
        internet.send("http://hooks.example/6")
    assert len(internet.server.requests) == 6


def test_a_redirect_that_says_no_place_is_refused() -> None:
    internet = Internet(lambda _: b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(Reject, match="answered 302"):
        internet.send()


def test_a_redirect_to_a_broken_receiver_is_retried() -> None:
    internet = Internet(lambda request: redirect("/next") if "/start" in request.line else b"")

    with pytest.raises(Retry, match="could not be asked"):
        internet.send()


def test_what_was_sent_under_tls_is_not_sent_again_without(certificate: Certificate) -> None:
    dialler = Dialler(allow_private=True, resolve=lambda *_: ["127.0.0.1"], tls=certificate.client)
    with (
        HttpServer(lambda _: redirect("http://plain.example/"), certificate.server) as server,
        pytest.raises(Reject, match="use https"),
    ):
        Sender(allow_http=True, dialler=dialler).webhook(f"https://hooks.example:{server.port}/")
