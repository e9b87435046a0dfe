"""Tenants over HTTP: the shapes of their shares, their endpoint, and the calls of a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.identity import check_name
from fairlead.core.instant import SECOND, span
from fairlead.core.tenancy import Role
from fairlead.engine.fair_keys import QueueShares, TenantShare
from fairlead.wire.endpoint import Ask, Endpoint
from fairlead.wire.tasks import Name


class TenantShown(Struct, frozen=True, kw_only=True):
    """What one fair key, such as a tenant, has of a queue."""

    key: str
    waiting: int
    """How many of its tasks are ready."""
    executing: int
    """How many execute, of the 500 oldest of the queue that do."""
    weight: float
    """How many turns it has for each one of a key with weight 1."""
    part_of_turns: float | None
    """Which part of the turns it has now, from 0 to 1; null if none of its tasks waits."""
    oldest_age_seconds: float | None
    """How long its oldest ready task has waited; null if none waits, or if it is not among the 500 oldest."""
    noisy: bool
    """Whether more than 80 % of all that waits, and at least 100 tasks, are its own, while others wait, too."""


class QueueSharesShown(Struct, frozen=True, kw_only=True):
    """Who shares a queue, turn by turn."""

    queue: str
    shared_by: str
    """`tenant`, `type`, `tag:NAME` or `parameter:NAME`."""
    keys: int
    """How many keys have ready tasks, at least; 0 to who is bound to a tenant."""
    tenants: list[TenantShown]
    """The keys of which most tasks wait, 50 at most; to who is bound to a tenant, its own."""
    waiting_of_others: int
    """How many tasks of all other keys are ready; 0 to who is bound to a tenant."""


class TenantList(Struct, frozen=True, kw_only=True):
    """Who shares the queues that are shared by fair keys, by the name of the queue, 50 at most."""

    queues: list[QueueSharesShown]


class TenantsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue."""

    queue: Name | None = None
    """Only this queue; there is nothing of one that nobody shares."""


def tenants_shown(found: Sequence[QueueShares]) -> TenantList:
    """Who shares the queues, as it is shown."""
    return TenantList(
        queues=[
            QueueSharesShown(
                queue=each.queue,
                shared_by=each.by,
                keys=each.keys,
                tenants=[_share_shown(share) for share in each.shares],
                waiting_of_others=each.others,
            )
            for each in found
        ]
    )


def _share_shown(share: TenantShare) -> TenantShown:
    return TenantShown(
        key=share.key,
        waiting=share.waiting,
        executing=share.executing,
        weight=share.weight,
        part_of_turns=share.part,
        oldest_age_seconds=None if share.oldest_age is None else share.oldest_age / SECOND,
        noisy=share.noisy,
    )


def shares_of(shown: TenantList) -> list[QueueShares]:
    """Who shares the queues, as it was shown."""
    return [
        QueueShares(
            queue=each.queue,
            by=each.shared_by,
            keys=each.keys,
            shares=tuple(
                TenantShare(
                    key=share.key,
                    waiting=share.waiting,
                    executing=share.executing,
                    weight=share.weight,
                    part=share.part_of_turns,
                    oldest_age=None if share.oldest_age_seconds is None else span(share.oldest_age_seconds),
                    noisy=share.noisy,
                )
                for share in each.tenants
            ),
            others=each.waiting_of_others,
        )
        for each in shown.queues
    ]


LIST_TENANTS: Final = Endpoint[TenantsQuery, None](
    method="GET",
    path="/api/v1/tenants",
    summary="List who shares the queues",
    role=Role.READ,
    query=TenantsQuery,
    answers={200: TenantList},
)


class RemoteTenants:
    """Who shares the queues behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self, queue: str | None = None) -> list[QueueShares]:
        """The queues that are shared, or one of them, by name."""
        query = {} if queue is None else {"queue": check_name("queue", queue)}
        return shares_of(await self._ask(LIST_TENANTS, TenantList, query=query))
