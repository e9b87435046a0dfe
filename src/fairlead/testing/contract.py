"""The storage contract as tests: one per law, each naming its clause.

A store's test file subclasses `StoreContract` and supplies an async fixture `store` that yields an empty store:

    class TestSqlite(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
            store = await open_store(f"sqlite:///{tmp_path}/tasks.db")
            yield store
            await store.close()

One that gives turns subclasses `SharingContract` too. One that keeps tasks as bytes subclasses `QuarantineContract`,
and supplies a fixture `vandal` that damages them.

The clauses are in the docstring of `fairlead.storage.protocol`.
"""

from __future__ import annotations

from fairlead.testing.clauses.add import AddingClauses, KeyClauses
from fairlead.testing.clauses.change import ChangingClauses
from fairlead.testing.clauses.claim import ClaimingClauses
from fairlead.testing.clauses.dependencies import DependingClauses
from fairlead.testing.clauses.fairness import ServiceByTurnClauses, TurnClauses
from fairlead.testing.clauses.feed import FeedClauses
from fairlead.testing.clauses.heartbeats import HeartbeatClauses, TimeClauses
from fairlead.testing.clauses.limits import BoundClauses, RateLimitClauses, RunningLimitClauses
from fairlead.testing.clauses.order import OrderClauses, PlaceClauses
from fairlead.testing.clauses.quarantine import QuarantineClauses
from fairlead.testing.clauses.read import FindingClauses, ListingClauses
from fairlead.testing.clauses.records import HealthClauses, RecordClauses
from fairlead.testing.clauses.refusals import RefusingClauses, RemovingClauses
from fairlead.testing.clauses.wait import PromptClauses, WaitingClauses


class StoreContract(
    TimeClauses,
    AddingClauses,
    KeyClauses,
    BoundClauses,
    ClaimingClauses,
    OrderClauses,
    RunningLimitClauses,
    RateLimitClauses,
    HeartbeatClauses,
    ChangingClauses,
    RefusingClauses,
    RemovingClauses,
    DependingClauses,
    FindingClauses,
    ListingClauses,
    PlaceClauses,
    RecordClauses,
    FeedClauses,
    HealthClauses,
    WaitingClauses,
    PromptClauses,
):
    """Every clause that can be held against a store within one process."""


class SharingContract(TurnClauses, ServiceByTurnClauses):
    """What holds beside those for a store that gives turns."""


class QuarantineContract(QuarantineClauses):
    """What holds beside those for a store that keeps tasks as bytes, which can be damaged."""
