"""Clauses R1 and X1: small versioned records, and what a store knows of its own health."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.core.health.diagnosis import TIERS, Level
from fairlead.storage.protocol import Examined, Store
from fairlead.storage.values import Record
from fairlead.testing.builders import a_task
from fairlead.testing.clauses.add import LARGE, ODD_BYTES
from fairlead.testing.steps import add, claim_one


async def values(store: Store, kind: str) -> dict[str, bytes]:
    """What is stored of a kind."""
    return {record.name: record.value for record in await store.scan(kind)}


class RecordClauses:
    """What `put`, `drop` and `scan` do."""

    async def test_a_record_is_stored_and_scanned(self, store: Store) -> None:
        """R1: with the version that was answered."""
        version = await store.put("schedule", "nightly", b"one")
        assert version is not None
        assert await store.scan("schedule") == [Record(kind="schedule", name="nightly", value=b"one", version=version)]

    async def test_a_new_value_has_a_new_version(self, store: Store) -> None:
        """R1: whatever was stored before, when nothing is expected."""
        first = await store.put("schedule", "nightly", b"one")
        second = await store.put("schedule", "nightly", b"two")
        assert first is not None
        assert second is not None
        assert second > first > 0
        assert await store.scan("schedule") == [Record(kind="schedule", name="nightly", value=b"two", version=second)]

    async def test_a_record_is_replaced_at_the_expected_version_only(self, store: Store) -> None:
        """R1: so that no one overwrites what they have not read."""
        first = await store.put("schedule", "nightly", b"one", expected=0)
        assert first is not None
        second = await store.put("schedule", "nightly", b"two", expected=first)
        assert second is not None
        assert await store.put("schedule", "nightly", b"three", expected=first) is None
        assert await store.put("schedule", "nightly", b"three", expected=second + 1) is None
        assert await values(store, "schedule") == {"nightly": b"two"}

    async def test_zero_expects_that_there_is_no_record(self, store: Store) -> None:
        """R1: create, never overwrite."""
        assert await store.put("schedule", "nightly", b"one", expected=0) is not None
        assert await store.put("schedule", "nightly", b"two", expected=0) is None
        assert await store.put("schedule", "other", b"two", expected=1) is None
        assert await values(store, "schedule") == {"nightly": b"one"}

    async def test_a_dropped_record_is_gone(self, store: Store) -> None:
        """R1: and may be created again."""
        await store.put("schedule", "nightly", b"one")
        assert await store.drop("schedule", "nightly") is True
        assert await store.drop("schedule", "nightly") is False
        assert await store.scan("schedule") == []
        assert await store.put("schedule", "nightly", b"two", expected=0) is not None
        assert await values(store, "schedule") == {"nightly": b"two"}

    async def test_a_record_is_dropped_at_the_expected_version_only(self, store: Store) -> None:
        """R1: likewise."""
        first = await store.put("schedule", "nightly", b"one")
        second = await store.put("schedule", "nightly", b"two")
        assert await store.drop("schedule", "nightly", expected=first) is False
        assert await store.drop("schedule", "nightly", expected=0) is False
        assert await store.drop("schedule", "unknown", expected=second) is False
        assert await values(store, "schedule") == {"nightly": b"two"}
        assert await store.drop("schedule", "nightly", expected=second) is True
        assert await store.scan("schedule") == []

    async def test_records_are_scanned_by_name(self, store: Store) -> None:
        """R1: in the order of their bytes, in no language's order."""
        names = ["-", "10", "9", ":", "A", "B", "Z", "_", "a", "a-b", "a.b", "a:b", "a_b", "aa", "b"]
        for name in (*names[::2], *names[1::2]):
            await store.put("queue", name, name.encode())
        assert [record.name for record in await store.scan("queue")] == sorted(names)

    async def test_kinds_are_told_apart(self, store: Store) -> None:
        """R1: (kind, name) is the key, whatever characters either has."""
        records = {("a", "b:c"): b"1", ("a:b", "c"): b"2", ("a", "b"): b"3", ("A", "b"): b"4", ("ab", ""): b"5"}
        for (kind, name), value in records.items():
            await store.put(kind, name, value)
        assert await values(store, "a") == {"b": b"3", "b:c": b"1"}
        assert await values(store, "a:b") == {"c": b"2"}
        assert await values(store, "A") == {"b": b"4"}
        assert await values(store, "unknown") == {}
        await store.drop("a", "b")
        assert await values(store, "A") == {"b": b"4"}

    async def test_values_survive_byte_for_byte(self, store: Store) -> None:
        """R1: they are opaque."""
        stored = {f"{at:02}": value for at, value in enumerate((*ODD_BYTES, LARGE))}
        for name, value in stored.items():
            await store.put("worker", name, value)
        assert await values(store, "worker") == stored

    async def test_of_concurrent_puts_at_one_version_one_is_stored(self, store: Store) -> None:
        """R1: compare and set in one step."""
        answers = await asyncio.gather(
            *(store.put("worker", "one", b"%d" % number, expected=0) for number in range(12))
        )
        winners = [number for number, answer in enumerate(answers) if answer is not None]
        assert len(winners) == 1
        assert await values(store, "worker") == {"one": b"%d" % winners[0]}


class HealthClauses:
    """What `examine` does, on a store that has it."""

    async def test_examining_changes_nothing_and_names_the_tier(self, store: Store) -> None:
        """X1: and each finding that is not green says what to do about it."""
        if not isinstance(store, Examined):
            pytest.skip("the store is not examined")
        await add(store, a_task(), a_task())
        task = await claim_one(store)
        before = await store.tally()

        examination = await store.examine()

        assert examination.tier in TIERS
        assert [finding.what for finding in examination.findings].count("durability") >= 1
        assert all(bool(finding.remedy) == (finding.level is not Level.GREEN) for finding in examination.findings)
        assert await store.tally() == before
        assert await store.get([task.id]) == [task]
