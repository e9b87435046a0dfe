"""Clause X1: what a store knows of its own health."""

from __future__ import annotations

import pytest

from fairlead.core.health.diagnosis import TIERS, Level
from fairlead.storage.protocol import Examined, Store
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add, claim_one


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
