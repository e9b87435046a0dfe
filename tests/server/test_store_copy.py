"""Whoever has a copy of the store cannot sign in with what is in it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from fairlead.admin.keys.service import Keyring
from fairlead.core.instant import HOUR
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import COOKIE
from fairlead.storage.open import open_store
from tests.server.serving import Service
from tests.servers.redis import RedisServer
from tests.servers.stores import Place, database, place, postgres, redis

__all__ = ["database", "place", "postgres", "redis"]

_WORDS = re.compile(rb"[A-Za-z0-9_-]{16,}")
_WITHOUT_KEY = 401


def copy_of(place: Place, server: RedisServer | None) -> bytes:
    """All bytes that are kept at a place; of a store in memory there are none outside its process."""
    copied = [_copied(url, server) for url in (place.url, place.journal) if url is not None]
    return b"\n".join(copied)


def _copied(url: str, server: RedisServer | None) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        file = Path(parts.path.removeprefix("/"))
        return b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*") if each.is_file())
    if parts.scheme == "redis":
        assert server is not None
        return b"\n".join(_redis_value(server, key) for key in server.ask("KEYS", "*"))
    if parts.scheme == "postgresql":
        return _dumped(url)
    return b""


def _redis_value(server: RedisServer, key: bytes) -> bytes:
    kind = server.ask("TYPE", key)
    match kind if isinstance(kind, str) else kind.decode():
        case "hash":
            return b"\n".join([key, *server.ask("HGETALL", key)])
        case "string":
            return b"\n".join([key, server.ask("GET", key)])
        case "zset":
            return b"\n".join([key, *server.ask("ZRANGE", key, "0", "-1")])
        case "list":
            return b"\n".join([key, *server.ask("LRANGE", key, "0", "-1")])
        case _:
            return bytes(key)


def _dumped(url: str) -> bytes:
    plain = url.partition("?")[0]
    said: list[bytes] = []
    with psycopg.connect(plain) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables "
            "WHERE table_schema LIKE 'fairlead%'"
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                said += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    return b"\n".join(said)


def signed(secret: bytes, key: str, service: Service) -> str:
    """A cookie as earlier versions made it, with a secret that lay in the store."""
    said = f"{key}.{(service.engine.clock.now() + HOUR) // 1_000_000}.0123456789abcdef"
    digest = hmac.digest(secret, f"session:{said}".encode(), hashlib.sha256)
    return f"{COOKIE}={said}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


async def asked(service: Service, **headers: str) -> int:
    # Only what is given: the client would keep a cookie that it was told to set.
    service.client.cookies.clear()
    answer = await service.client.get("/api/v1/queues", headers=headers)
    return answer.status_code


async def test_nothing_in_a_copy_of_the_store_signs_anybody_in(place: Place, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("redis") if place.url.startswith("redis") else None
    store = await open_store(place.url, journal=place.journal)
    async with Service(store) as service:
        made = await Keyring(service.engine).create("boss", [Role.ADMIN])
        said = await service.client.post("/api/v1/session", json={"key": made.text})
        cookie = said.headers["set-cookie"].partition(";")[0].partition("=")[2]
        assert await asked(service, cookie=f"{COOKIE}={cookie}") == 200
        copied = copy_of(place, server)
        assert (made.key.id.encode() in copied) or place.url.startswith("memory"), "it is a copy"
        for secret in (cookie, said.json()["csrf_token"], made.text, made.text.rpartition("_")[2]):
            assert secret.encode() not in copied
        for kind in ("secret", "session", "key"):
            for record in await store.scan(kind):
                assert await asked(service, cookie=signed(record.value, made.key.id, service)) == _WITHOUT_KEY
        for word in set(_WORDS.findall(copied)):
            text = word.decode()
            for shown in ({"cookie": f"{COOKIE}={text}"}, {"authorization": f"Bearer {text}"},
                          {"authorization": f"Bearer fl_{made.key.id}_{text}"}):  # fmt: skip
                assert await asked(service, **shown) == _WITHOUT_KEY


async def test_a_cookie_that_was_signed_as_by_an_earlier_version_is_refused(place: Place) -> None:
    store = await open_store(place.url, journal=place.journal)
    async with Service(store) as service:
        made = await Keyring(service.engine).create("boss", [Role.ADMIN])
        secret = b"s" * 32
        await store.put("secret", "session", secret)
        assert await asked(service, cookie=signed(secret, made.key.id, service)) == _WITHOUT_KEY
