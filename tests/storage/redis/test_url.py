"""What URLs of Redis say, and what errors show of them."""

from __future__ import annotations

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.storage.open import check_url
from fairlead.storage.redis.url import Host, Shape, Tls, parse_address

SOCKET = Host("/run/redis/redis.sock", 0)


@pytest.mark.parametrize("scheme", ["unix", "redis+unix", "UNIX"])
def test_a_socket_is_named_by_its_path_as_redis_py_does(scheme: str) -> None:
    for written, database, username, password in (
        ("/run/redis/redis.sock", 0, None, None),
        ("/run/redis/redis.sock?db=3", 3, None, None),
        ("me:s%40crt@/run/redis/redis.sock?db=3", 3, "me", "s@crt"),
        ("me@/run/redis/redis.sock?password=s@crt", 0, "me", "s@crt"),
        ("/run/redis/redis%2Esock?username=me&password=it", 0, "me", "it"),
    ):
        address = parse_address(f"{scheme}://{written}")
        assert address.hosts == (SOCKET,) and address.shape is Shape.SINGLE
        assert (address.database, address.username, address.password) == (database, username, password)
        assert str(address) == "/run/redis/redis.sock"
        check_url(f"{scheme}://{written}")


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis://", (Host("localhost", 6379),)),
        ("redis://:7000", None),
        ("redis://[::1]", (Host("::1", 6379),)),
        ("redis://[::1]:7000/1", (Host("::1", 7000),)),
        ("redis+cluster://a,[::1]:7000,b:1", (Host("a", 6379), Host("::1", 7000), Host("b", 1))),
        ("redis+sentinel://[fe80::1],b/tasks", (Host("fe80::1", 26379), Host("b", 26379))),
        ("redis://::1", None),
        ("redis://a:0", None),
        ("redis://a:65536", None),
    ],
)
def test_hosts_may_be_addresses_of_any_kind(url: str, hosts: tuple[Host, ...] | None) -> None:
    if hosts is None:
        with pytest.raises(InvalidSettings, match="invalid host"):
            parse_address(url)
    else:
        check_url(url)
        assert parse_address(url).hosts == hosts


def test_an_address_is_shown_in_brackets() -> None:
    assert str(parse_address("redis://me:secret@[::1]:7000")) == "[::1]:7000"


def test_options_of_tls_are_known_by_our_names_and_by_those_of_redis_py() -> None:
    ours = "ca=a.pem&verify=no&check_name=no&server_name=redis.example&cert=c.pem&key=k.pem&key_password=p"
    theirs = (
        "ssl_ca_certs=a.pem&ssl_cert_reqs=none&ssl_check_hostname=false&server_name=redis.example&ssl_certfile=c.pem"
        "&ssl_keyfile=k.pem&ssl_password=p"
    )
    tls = Tls(
        ca="a.pem",
        verify=False,
        check_name=False,
        server_name="redis.example",
        cert="c.pem",
        key="k.pem",
        key_password="p",
    )
    assert parse_address(f"rediss://h?{ours}").tls == parse_address(f"rediss://h?{theirs}").tls == tls
    assert parse_address("rediss://h?ssl_cert_reqs=required").tls == Tls()
    assert parse_address("redis://h").tls is None


def test_sentinels_have_a_user_of_their_own() -> None:
    address = parse_address("redis+sentinel://me:it@h/tasks?sentinel_username=watcher&sentinel_password=p")
    assert (address.username, address.sentinel_username, address.sentinel_password) == ("me", "watcher", "p")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h?ca=a.pem", "is for TLS; begin it with rediss"),
        ("unix:///run/r?cert=a.pem", "is for TLS"),
        ("rediss://h?key=k.pem", "a key without a certificate"),
        ("rediss://h?verify=perhaps", "neither yes nor no"),
        ("redis://h?sentinel_username=x", "no sentinels"),
        ("redis://h/1?db=2", "does not name one database"),
        ("redis://h?db=x", "does not name one database"),
        ("redis+cluster://h?db=1", "only database 0"),
        ("unix://run/redis.sock", "after three slashes"),
        ("unix://", "after three slashes"),
        ("redis://h?prefix=a&prefix=b", "twice"),
        ("redis://h?prefx=a", "unknown option 'prefx'"),
        ("redis://h?credentials_command=", "is empty"),
        ("redis://h?credentials_command=say%20'it", "cannot be split"),
        ("redis+tcp://h", "unknown scheme"),
    ],
)
def test_what_would_have_no_effect_or_makes_no_sense_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2",
        "redis://:hunter2",
        "redis://me:hun/ter2@h",
        "redis://me:hun?hunter2=ter@h",
        "redis://me:p@h?hunter2!=x",
        "rediss://me:hunter2@h?key=k.pem",
        "unix://me:hunter2@host/run/redis.sock",
        "redis://me:hunter2@h:port",
        "redis://me:p@h?password=hunter2&timeout=x",
        "redis://me:hunter2@h?credentials_command='",
    ],
)
def test_what_is_refused_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        check_url(url)
    assert "hun" not in str(refused.value)
