"""A host as it is written; what only looks like this machine is not."""

from __future__ import annotations

import ipaddress

import pytest

from fairlead.core.hosts import host_of, is_loopback, is_loopback_address


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("localhost:8420", "localhost"),
        ("LOCALHOST", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:8420", "::1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[2001:DB8::1]:1", "2001:db8::1"),
        ("my_host.example.com:80", "my_host.example.com"),
        ("grüße.example.com:80", "grüße.example.com"),
    ],
)
def test_the_host_of_an_authority(authority: str, host: str) -> None:
    assert host_of(authority) == host


@pytest.mark.parametrize(
    "authority",
    [
        "",
        "[::1].evil.com",
        "[::1]evil.com",
        "[::1].evil.com:80",
        "[::1",
        "::1]",
        "[::1]]",
        "[[::1]]",
        "[]",
        "::1",
        ":80",
        "[localhost]",
        "[127.0.0.1]",
        "[::1%lo]",
        "[::1%evil.com]",
        "[v1.x]",
        "localhost:80:80",
        "localhost:",
        "localhost:x",
        "localhost:\u00b2",
        "localhost:123456",
        "u@localhost",
        "localhost@evil.com",
        "evil.com/localhost",
        "localhost#x",
        "localhost\x00",
        "localhost evil.com",
        "localhost,evil.com",
        "localhost\\.evil.com",
        "local\nhost",
    ],
)
def test_what_is_no_host_is_none(authority: str) -> None:
    assert host_of(authority) == ""
    assert not is_loopback(host_of(authority))


@pytest.mark.parametrize(
    "host", ["localhost", "localhost.", "app.localhost", "127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]
)
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.com",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "localhostx",
        "xlocalhost",
        "a b.localhost",
        "@.localhost",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "::2",
        "::ffff:128.0.0.1",
        "::1%evil.com",
        "[::1]",
        "127.1",
        "0x7f000001",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_what_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_an_address_is_judged_like_a_host() -> None:
    for text in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"):
        assert is_loopback_address(ipaddress.ip_address(text)) == is_loopback(text)
