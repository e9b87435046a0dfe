"""Where connections on behalf of a task may lead."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence

import pytest

from fairlead.core.retry import Reject
from fairlead.worker.builtin.outbound import Dialler, Target, parse_target, refusal_of
from tests.worker.builtin.servers import closed_port, silent_port

PUBLIC = "93.184.215.14"

REFUSED = [
    ("127.0.0.1", "loopback"),
    ("127.255.0.1", "loopback"),
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "private"),
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("192.0.0.192", "reserved"),
    ("192.0.2.1", "private"),
    ("198.18.0.1", "private"),
    ("100.64.0.1", "reserved"),
    ("100.100.100.200", "reserved"),
    ("168.63.129.16", "reserved"),
    ("169.254.169.254", "link-local"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "private"),
    ("255.255.255.255", "private"),
    ("::", "unspecified"),
    ("::1", "loopback"),
    ("fe80::1", "link-local"),
    ("fe80::1%1", "link-local"),
    ("fc00::1", "private"),
    ("fd00:ec2::254", "private"),
    ("fec0::1", "reserved"),
    ("ff02::1", "multicast"),
    ("2001:db8::1", "private"),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "private"),
    ("3fff::1", "reserved"),
    ("::7f00:1", "reserved"),
    ("::ffff:127.0.0.1", "loopback (127.0.0.1 inside it)"),
    ("::ffff:169.254.169.254", "link-local (169.254.169.254 inside it)"),
    ("::ffff:10.0.0.1", "private (10.0.0.1 inside it)"),
    ("64:ff9b::7f00:1", "loopback (127.0.0.1 inside it)"),
    ("64:ff9b::a00:1", "private (10.0.0.1 inside it)"),
    ("64:ff9b:1::808:808", "reserved"),
    ("2002:7f00:1::", "loopback (127.0.0.1 inside it)"),
    ("2002:a9fe:a9fe::1", "link-local (169.254.169.254 inside it)"),
]

ALLOWED = [
    "8.8.8.8",
    PUBLIC,
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]


def target(host: str = "hooks.example") -> Target:
    return parse_target(f"http://{host}/", allow_http=True)


class Network:
    """A resolver and a connector of our own making, which keep what they were asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.looked_up: list[str] = []
        self.connected_to: list[str] = []

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.looked_up.append(host)
        return self._answers.pop(0)

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.connected_to.append(address)
        return socket.socket()

    def dialler(self, *, allow_private: bool = False) -> Dialler:
        return Dialler(allow_private=allow_private, resolve=self.resolve, connect=self.connect)


def soon() -> float:
    return time.monotonic() + 10


# Addresses


@pytest.mark.parametrize(("address", "reason"), REFUSED)
def test_addresses_that_are_not_public_are_refused(address: str, reason: str) -> None:
    assert refusal_of(ipaddress.ip_address(address)) is not None
    network = Network([address])

    with pytest.raises(Reject, match="webhook_allow_private"):
        network.dialler().dial(target(), soon())

    assert not network.connected_to


@pytest.mark.parametrize(("address", "reason"), REFUSED)
def test_the_refusal_says_what_kind_of_address_it_is(address: str, reason: str) -> None:
    # What is reserved and what is private in the registry's odd corners differs between patch releases of Python.
    fitting = {"reserved", "private"} if reason == "reserved" else {reason}
    assert refusal_of(ipaddress.ip_address(address)) in fitting


@pytest.mark.parametrize("address", ALLOWED)
def test_public_addresses_are_allowed(address: str) -> None:
    network = Network([address])

    network.dialler().dial(target(), soon()).close()

    assert network.connected_to == [str(ipaddress.ip_address(address))]


@pytest.mark.parametrize(("address", "reason"), REFUSED)
def test_a_setting_allows_them_all(address: str, reason: str) -> None:
    network = Network([address])

    network.dialler(allow_private=True).dial(target(), soon()).close()

    assert len(network.connected_to) == 1


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    network = Network([PUBLIC, "10.0.0.1"])

    with pytest.raises(Reject, match=r"leads to the private address 10\.0\.0\.1"):
        network.dialler().dial(target(), soon())

    assert not network.connected_to


def test_the_connection_goes_to_the_checked_address_without_a_second_lookup() -> None:
    rebinding = Network([PUBLIC], ["127.0.0.1"])

    rebinding.dialler().dial(target("rebinding.example"), soon()).close()

    assert rebinding.looked_up == ["rebinding.example"]
    assert rebinding.connected_to == [PUBLIC]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]", "\uff11\uff12\uff17.0.0.1"],
)
def test_no_spelling_of_loopback_passes_the_systems_resolver(host: str) -> None:
    try:
        with pytest.raises(Reject, match="loopback address"):
            Dialler(allow_private=False).dial(target(host), soon())
    except socket.gaierror:
        pass  # this system does not know the spelling, which is as good


def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    patience: list[float] = []

    def connect(address: str, port: int, timeout: float) -> socket.socket:
        patience.append(timeout)
        if address == PUBLIC:
            raise TimeoutError
        return socket.socket()

    dialler = Dialler(allow_private=False, resolve=lambda *_: [PUBLIC, "8.8.8.8"], connect=connect)

    dialler.dial(target(), soon()).close()

    assert patience[0] <= 5 < patience[1] <= 10


def test_when_no_address_answers_the_last_failure_is_told() -> None:
    dialler = Dialler(allow_private=True, resolve=lambda *_: ["127.0.0.1", "127.0.0.2"])

    with pytest.raises(ConnectionRefusedError):
        dialler.dial(target(f"x:{closed_port()}"), soon())


def test_a_host_without_addresses_cannot_be_dialled() -> None:
    with pytest.raises(OSError, match="no address"):
        Network([]).dialler().dial(target(), soon())


def test_a_handshake_that_never_ends_is_timed_out() -> None:
    with silent_port() as port, pytest.raises(TimeoutError):
        Dialler(allow_private=True).dial(Target("https", "127.0.0.1", port, "/"), time.monotonic() + 0.05)


# URLs


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("https://example.com", Target("https", "example.com", 443, "/"), "example.com"),
        ("https://EXAMPLE.com:8443/a?b=c#d", Target("https", "example.com", 8443, "/a?b=c"), "example.com:8443"),
        ("https://[2001:DB8::1]:444/", Target("https", "2001:db8::1", 444, "/"), "[2001:db8::1]:444"),
        (
            "https://bücher.example/ü?ö=%C3%A4",
            Target("https", "xn--bcher-kva.example", 443, "/%C3%BC?%C3%B6=%C3%A4"),
            None,
        ),
        ("https://example.com.:443/", Target("https", "example.com.", 443, "/"), "example.com."),
        ("http://example.com:443/", Target("http", "example.com", 443, "/"), "example.com:443"),
        ("https://example.com//a/../b", Target("https", "example.com", 443, "//a/../b"), "example.com"),
        ("https://example.com?q", Target("https", "example.com", 443, "/?q"), "example.com"),
    ],
)
def test_a_url_names_a_target(url: str, expected: Target, authority: str | None) -> None:
    found = parse_target(url, allow_http=True)

    assert expected == found
    assert authority in (None, found.authority)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "scheme ''"),
        ("example.com/path", "scheme ''"),
        ("//example.com/", "scheme ''"),
        ("ftp://example.com/", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("gopher://example.com/", "scheme 'gopher'"),
        ("http://example.com/", "webhook_allow_http"),
        ("https://ada:secret@example.com/", "Authorization header"),
        ("https://ada@example.com/", "Authorization header"),
        ("https://@example.com/", "Authorization header"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:65536/", "not valid"),
        ("https://example.com:-1/", "not valid"),
        ("https://example.com:http/", "not valid"),
        ("https:///path", "not a host name"),
        ("https://exa%6dple.com/", "not a host name"),
        ("https://-example.com/", "not a host name"),
        ("https://a..b/", "not a host name"),
        (f"https://{'a' * 64}.com/", "not a host name"),
        (f"https://{'a.' * 130}com/", "not a host name"),
        ("https://[::1/", "not valid"),
        ("https://[v1.x]/", "(brackets|not valid)"),
        ("https://[2606:4700::1].example.com/", "(brackets|not valid)"),
        ("https://[2606:4700::1]example.com:443/", "(brackets|not valid)"),
        ("https://example.com\\@evil.example/", "backslash"),
        ("https://example.com/a b", "space"),
        ("https://example.com/\r\nHost: evil", "control character"),
        ("https://exam\tple.com/", "control character"),
        ("https://example.com/\ud800", "not valid"),
        ("https://example.com℀.evil/", "not valid"),
    ],
)
def test_a_url_that_may_not_be_asked_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(Reject, match=says) as raised:
        parse_target(url, allow_http=False)

    assert "secret" not in str(raised.value)


def test_what_goes_into_messages_leaves_out_the_path() -> None:
    assert str(parse_target("https://example.com:444/token?secret", allow_http=False)) == "https://example.com:444"
