"""API keys: made once, stored as a hash, gone when revoked; on every store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring, parse_roles, split
from fairlead.core.errors import InvalidSettings, InvalidTask, KeyNotFound, StoreMismatch
from fairlead.core.instant import DAY
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store


@pytest.fixture
async def keyring(store_url: str) -> AsyncIterator[Keyring]:
    engine = AdminEngine(await open_store(store_url), clock=ManualClock())
    yield Keyring(engine)
    await engine.close()


@pytest.fixture
def here() -> Keyring:
    return Keyring(AdminEngine(MemoryStore(), clock=ManualClock()))


async def test_a_key_is_made_listed_and_revoked(keyring: Keyring) -> None:
    now = keyring.clock.now()
    made = await keyring.create("ci", [Role.READ, Role.SUBMIT], tenant="acme", expires=now + DAY, rate=5)
    other = await keyring.create("web", [Role.ADMIN])
    assert sorted(await keyring.keys(), key=lambda key: key.name) == [made.key, other.key]
    assert made.key.roles == (Role.SUBMIT, Role.READ)
    assert (made.key.tenant, made.key.expires_at, made.key.rate) == ("acme", now + DAY, 5)
    assert await keyring.revoke(made.key.id) == made.key
    assert await keyring.keys() == [other.key]
    assert await keyring.revoke("web") == other.key
    assert await keyring.keys() == []


async def test_the_store_learns_no_more_of_a_key_than_its_hash() -> None:
    store = MemoryStore()
    made = await Keyring(AdminEngine(store)).create("ci", [Role.READ])
    parts = split(made.text)
    assert parts is not None and parts[0] == made.key.id
    (record,) = await store.scan("key")
    assert parts[1].encode() not in record.value
    assert made.key.digest == hashlib.sha256(parts[1].encode()).hexdigest()
    assert made.key.opens(parts[1])
    assert not made.key.opens(parts[1][:-1] + "!") and not made.key.opens("")


async def test_no_two_keys_are_alike(here: Keyring) -> None:
    texts = {(await here.create("same", [Role.READ])).text for _ in range(50)}
    assert len(texts) == 50
    assert all(text.replace("_", "").isalnum() for text in texts), "a double click selects a whole key"


@pytest.mark.parametrize("text", ["", "fl_", "fl_abc", "fl_abc_", "fl__secret", "xx_abc_secret", "fl-abc-secret"])
def test_what_cannot_be_a_key_has_no_parts(text: str) -> None:
    assert split(text) is None


async def test_what_makes_no_sense_is_refused(here: Keyring) -> None:
    now = here.clock.now()
    with pytest.raises(InvalidTask, match="name 'two words'"):
        await here.create("two words", [Role.READ])
    with pytest.raises(InvalidSettings, match="no role"):
        await here.create("x", [])
    with pytest.raises(InvalidSettings, match="has an expiry in the past"):
        await here.create("x", [Role.READ], expires=now)
    with pytest.raises(InvalidSettings, match="requests a second"):
        await here.create("x", [Role.READ], rate=-1)
    with pytest.raises(InvalidSettings, match="tenant"):
        await here.create("x", [Role.READ], tenant="")
    with pytest.raises(InvalidSettings, match="'root' is unknown; use submit, read, work, admin"):
        parse_roles(["read", "root"])
    assert await here.keys() == []


async def test_a_name_that_two_keys_have_revokes_neither(here: Keyring) -> None:
    first = await here.create("ci", [Role.READ])
    second = await here.create("ci", [Role.READ])
    with pytest.raises(InvalidSettings, match="2 keys are called 'ci'") as refused:
        await here.revoke("ci")
    assert first.key.id in str(refused.value) and second.key.id in str(refused.value)
    await here.revoke(first.key.id)
    assert await here.revoke("ci") == second.key
    with pytest.raises(KeyNotFound, match="key 'ci' not found"):
        await here.revoke("ci")


async def test_a_key_that_cannot_be_read_counts_and_opens_nothing() -> None:
    store = MemoryStore()
    await store.put("key", "odd", b"{}")
    for keyring in (Keyring(AdminEngine(store)), Keyring(AdminEngine(store))):
        assert await keyring.read() == ([], ["odd"])
        with pytest.raises(StoreMismatch, match="fairlead quarantine show key/odd"):
            await keyring.revoke("odd")
