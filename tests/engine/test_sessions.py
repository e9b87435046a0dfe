"""What is kept of the sessions of browsers: nothing that opens one, and nothing for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring, NewKey
from fairlead.admin.keys.sessions import MOST_PER_KEY, SESSION_KIND, name_of
from fairlead.admin.sweeper import SESSION_INTERVAL, Sweeper
from fairlead.core.errors import StoreReadOnly, StoreUnavailable
from fairlead.core.health.quarantine import QUARANTINE, Quarantined
from fairlead.core.instant import DAY, HOUR, MINUTE
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.values import Record
from tests.servers.stores import Place, database, place, postgres, redis

__all__ = ["database", "place", "postgres", "redis"]


@pytest.fixture
async def keyring(place: Place) -> AsyncIterator[Keyring]:
    store = await open_store(place.url, journal=place.journal)
    yield Keyring(AdminEngine(store, clock=ManualClock()))
    await store.close()


async def open_session(keyring: Keyring, made: NewKey | None = None) -> str:
    key = (made or await keyring.create("web", [Role.ADMIN])).key
    token, _ = await keyring.open_session(key, 12 * HOUR)
    return token


class TestOnEveryStore:
    async def test_a_session_is_found_by_its_token_and_ended(self, keyring: Keyring) -> None:
        made = await keyring.create("web", [Role.ADMIN])
        token, expires_at = await keyring.open_session(made.key, 12 * HOUR)
        assert expires_at == keyring.clock.now() + 12 * HOUR
        (name,) = found = await keyring.sessions.read()
        assert name == name_of(token) and found[name].key == made.key.id
        await keyring.sessions.close(name)
        assert await keyring.sessions.read() == {}

    async def test_what_is_kept_holds_neither_the_token_nor_the_key(self, keyring: Keyring) -> None:
        made = await keyring.create("web", [Role.ADMIN])
        token = await open_session(keyring, made)
        kept = [await keyring.sessions._store.scan(kind) for kind in ("session", "key", "secret")]
        said = repr(kept)
        assert token not in said and made.text.rpartition("_")[2] not in said
        assert [len(records) for records in kept] == [1, 1, 0]

    async def test_revoking_a_key_ends_its_sessions_and_no_others(self, keyring: Keyring) -> None:
        made, other = [await keyring.create(name, [Role.READ]) for name in ("web", "phone")]
        await open_session(keyring, made)
        token = await open_session(keyring, other)
        await keyring.revoke("web")
        assert list(await keyring.sessions.read()) == [name_of(token)]

    async def test_the_secret_of_earlier_versions_is_removed(self, keyring: Keyring) -> None:
        store = keyring.sessions._store
        for _ in range(2):
            # A server of an earlier version may make it again.
            await store.put("secret", "session", b"s" * 32)
            await keyring.sessions.tidy(keyring.clock.now())
            assert await store.scan("secret") == []

    async def test_and_what_was_set_aside_of_it(self, keyring: Keyring) -> None:
        store = keyring.sessions._store
        aside = Quarantined(kind="secret", name="session", parts={"value": b"s" * 31}, error="31 bytes", found_at=0)
        await store.put(QUARANTINE, aside.key, msgspec.msgpack.encode(aside))
        await keyring.sessions.tidy(keyring.clock.now())
        assert await store.scan(QUARANTINE) == []


async def test_a_session_ends_no_later_than_its_key() -> None:
    keyring = Keyring(AdminEngine(MemoryStore(), clock=ManualClock()))
    made = await keyring.create("web", [Role.ADMIN], expires=keyring.clock.now() + HOUR)
    assert (await keyring.open_session(made.key, DAY))[1] == made.key.expires_at


async def test_a_sweep_removes_sessions_that_are_over() -> None:
    clock = ManualClock()
    engine = AdminEngine(MemoryStore(), clock=clock)
    keyring, sweeper = Keyring(engine), Sweeper(engine)
    made = await keyring.create("web", [Role.ADMIN])
    await keyring.open_session(made.key, MINUTE)
    lasting, _ = await keyring.open_session(made.key, DAY)
    await sweeper.tidy()
    assert len(await keyring.sessions.read()) == 2
    clock.advance(2 * SESSION_INTERVAL)
    await sweeper.tidy()
    assert list(await keyring.sessions.read()) == [name_of(lasting)]


async def test_a_sweep_removes_sessions_whose_key_is_gone() -> None:
    engine = AdminEngine(MemoryStore(), clock=ManualClock())
    keyring = Keyring(engine)
    made = await keyring.create("web", [Role.ADMIN])
    await open_session(keyring, made)
    await engine.store.drop("key", made.key.id)
    await keyring.sessions.tidy(engine.clock.now())
    assert await keyring.sessions.read() == {}


async def test_where_there_is_nothing_to_remove_nothing_is_written() -> None:
    store = ReadOnly()
    keyring = Keyring(AdminEngine(store, clock=ManualClock()))
    await open_session(keyring)
    store.closed = True
    await keyring.sessions.tidy(keyring.clock.now())
    assert len(await keyring.sessions.read()) == 1


async def test_no_session_is_removed_because_keys_cannot_be_looked_at() -> None:
    store = KeysAway()
    keyring = Keyring(AdminEngine(store, clock=ManualClock()))
    await open_session(keyring)
    store.away = True
    await keyring.sessions.tidy(keyring.clock.now())
    assert len(await keyring.sessions.read()) == 1


async def test_the_sessions_of_a_key_are_bounded() -> None:
    clock = ManualClock()
    keyring = Keyring(AdminEngine(MemoryStore(), clock=clock))
    made = await keyring.create("web", [Role.ADMIN])
    tokens = []
    for _ in range(MOST_PER_KEY + 5):
        clock.advance(MINUTE)
        tokens.append(await open_session(keyring, made))
    assert set(await keyring.sessions.read()) == {name_of(token) for token in tokens[5:]}


class ReadOnly(MemoryStore):
    """A store that takes no writes."""

    closed = False

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        if self.closed:
            raise StoreReadOnly("the file cannot be written; nothing was stored")
        return await super().drop(kind, name, expected=expected)


class KeysAway(MemoryStore):
    """A store that cannot be asked for keys, as while a journal is out of reach."""

    away = False

    async def scan(self, kind: str) -> list[Record]:
        if self.away and kind in ("key", "secret"):
            raise StoreUnavailable("the journal is away")
        return await super().scan(kind)


def test_the_kind_is_that_which_a_journal_leaves_in_the_hot_store() -> None:
    from fairlead.storage.journal.records import PASSING

    assert SESSION_KIND in PASSING
