"""Where claims begin, and what they need to know of the lanes before.

A bound is moved beside the claims, after some of them, in steps of which each commits by itself: a ceiling is raised;
all writers end that may not have seen it; the bound comes to the first task that may be taken, and no further than the
ceiling. No claim and no writer waits for this.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.postgres.url import Address
from fairlead.storage.values import Claim

FEW_LANES: Final = 16
"""Up to so many lanes, or types that a worker can run, a claim looks at each of them."""
OF_ALL: Final = "claim.of_all"
OF_GROUPS: Final = "claim.of_groups"
OF_LANES: Final = "claim.of_lanes"
"""Where a claim looks for the first tasks."""
_FRESH: Final = 1.0
"""Seconds for which a survey holds. It tells how to look, never what is found: a stale one costs time only."""
_REMEMBERED: Final = 256
"""Kinds of claims that a process knows of."""
_MOVE_AFTER: Final = 4_000
"""Tasks that claims may have to pass over before bounds are moved: about thirty pages of an index."""
_AGAIN_AFTER: Final = 400
"""The same, when writers had to be waited for."""
_MOVE_PAST: Final = 20_000
"""Tasks that one move passes over."""
_FIND_OUT_INTERVAL: Final = 10.0
"""Seconds after which it is found out again of which routes the types are in a type set: until then new ones are looked
up for each task."""
_MEND_INTERVAL: Final = 60.0
"""Seconds after which one looks from the very beginning: whatever is before a bound is found by then."""

_Wish = tuple[tuple[str, ...], frozenset[str], frozenset[str] | None, frozenset[str]]
"""The queues, capabilities and types of a claim, and the types that are not to be taken."""


class LaneSurvey(Struct):
    """What claims of one kind are to expect."""

    at: float
    """When it was made, by a clock that only goes forward."""
    first: str
    """Where they look for the first tasks."""
    first_under_limits: str
    """The same, where types may be shut."""
    keyed: bool
    """Whether tasks with concurrency keys wait."""
    fair: bool
    """Whether tasks wait that take turns."""
    type_set: int


class _Passing(Struct):
    """What claims of a queue and type set have to pass over since its bounds were moved."""

    mended_at: float
    tasks: int = 0
    latest: Instant | None = None
    """When the wait of the latest task began that was taken."""
    ceiling: Instant | None = None
    """Raised, and not known to have been seen by all."""
    writers: frozenset[str] = frozenset()
    """Those that may not have seen it."""


class Bounds:
    """Where claims begin."""

    def __init__(
        self,
        connections: Connections,
        statements: Statements,
        address: Address,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._schema = address.schema
        self._monotonic = monotonic
        self.move_after = _MOVE_AFTER
        self._surveys: dict[_Wish, LaneSurvey] = {}
        self._passing: dict[tuple[str, int], _Passing] = {}
        self._find_out_at: dict[int, float] = {}
        """When routes are looked at for a type set again."""

    async def survey(self, claim: Claim) -> LaneSurvey:
        """What this claim is to expect."""
        wish = tuple(order.queue for order in claim.queues), claim.capabilities, claim.types, claim.excluded_types
        found, now = self._surveys.get(wish), self._monotonic()
        if found is None or now - found.at > _FRESH:
            if len(self._surveys) >= _REMEMBERED:
                self.forget()
            found = self._surveys[wish] = await self._look(claim, now)
        return found

    def forget(self) -> None:
        """Forget what was surveyed: something of it is not there any more."""
        self._surveys.clear()
        self._find_out_at.clear()

    async def took(self, claim: Claim, type_set: int, tasks: Sequence[Task]) -> None:
        """Take note of what a claim has taken, and move the bounds if much was."""
        latest: dict[str, Instant] = {}
        for task in tasks:
            queue, ready_at = task.spec.queue, task.status.ready_at
            latest[queue] = max(latest.get(queue, ready_at), ready_at)
        if len(latest) == 1:
            ((queue, ready_at),) = latest.items()
            await self._pass(queue, type_set, len(tasks), ready_at)
        else:
            for queue, ready_at in latest.items():
                count = sum(task.spec.queue == queue for task in tasks)
                await self._pass(queue, type_set, count, ready_at)

    async def passed_over(self, claim: Claim, type_set: int) -> None:
        """Take note that a claim had to pass over so much that it gave up, and move the bounds."""
        for order in claim.queues:
            await self._pass(order.queue, type_set, self.move_after, None)

    async def _pass(self, queue: str, type_set: int, count: int, latest: Instant | None) -> None:
        passing = self._passing.get((queue, type_set))
        if passing is None:
            if len(self._passing) >= 16 * _REMEMBERED:
                self._passing.clear()
            passing = self._passing[queue, type_set] = _Passing(self._monotonic())
        passing.tasks += count
        if latest is not None:
            passing.latest = latest if passing.latest is None else max(latest, passing.latest)
        if passing.tasks >= self.move_after:
            passing.tasks = 0
            # What a claim took goes to its caller; the next one to move meets the same trouble.
            with contextlib.suppress(StoreError):
                await self._move(queue, type_set, passing)

    async def _move(self, queue: str, type_set: int, passing: _Passing) -> None:
        if passing.ceiling is None:
            ((ceiling,),) = await self._fetch("bounds.raise", queue, passing.latest)
            if ceiling is None:
                return
            passing.ceiling, passing.latest = ceiling, None
            passing.writers = await self._writers()
        elif passing.writers:
            passing.writers &= await self._writers()
        if passing.writers:
            passing.tasks = max(self.move_after - _AGAIN_AFTER, 0)
            return
        now = self._monotonic()
        mend = now - passing.mended_at > _MEND_INTERVAL
        statement = self._statements.moving(_MOVE_PAST)

        async def work(session: Session) -> bool:
            ((mine,),) = await session.fetch(self._statements["bounds.turn"], (self._schema,))
            if mine:
                await session.fetch(statement, (queue, type_set, passing.ceiling, mend))
            return bool(mine)

        if await self._connections.transaction(work):
            passing.ceiling = None
            passing.mended_at = now if mend else passing.mended_at

    async def _writers(self) -> frozenset[str]:
        return frozenset(name for (name,) in await self._fetch("bounds.writers", self._schema))

    async def _look(self, claim: Claim, now: float) -> LaneSurvey:
        digest, excluding, types = _type_set(claim)
        lanes, keyed, fair, type_set, unknown = await self._survey(claim, digest)
        if digest and type_set is None:
            await self._fetch("bounds.know", digest, excluding, binary_arrays.texts(types))
            *_, type_set, _ = await self._survey(claim, digest)
        elif digest:
            await self._fetch("bounds.use", type_set)
        if type_set is not None and unknown and now >= self._find_out_at.get(type_set, now):
            self._find_out_at[type_set] = now + _FIND_OUT_INTERVAL
            await self._fetch("bounds.find_out", type_set)
        # The lanes of a few types are asked for directly, however many others there are.
        few = len(lanes) <= FEW_LANES or (not excluding and len(types) <= FEW_LANES)
        all_types = len(lanes) <= FEW_LANES and all(excluding != (lane in types) for lane in lanes)
        first = OF_ALL if not digest or all_types else OF_LANES if few else OF_GROUPS
        return LaneSurvey(now, first, OF_LANES if few else first, keyed, fair, type_set or 0)

    async def _survey(self, claim: Claim, digest: str) -> tuple[list[str], bool, bool, int | None, bool]:
        rows = await self._fetch(
            "bounds.survey",
            binary_arrays.texts([order.queue for order in claim.queues]),
            binary_arrays.texts(sorted(claim.capabilities)),
            digest,
            FEW_LANES + 1,
        )
        lanes, keyed, fair, type_set, unknown = rows[0]
        return lanes, keyed, fair, type_set, unknown

    async def _fetch(self, name: str, *parameters: Any) -> list[Any]:
        return await self._connections.fetch(self._statements[name], parameters)


def _type_set(claim: Claim) -> tuple[str, bool, list[str]]:
    """The digest of the types that may be taken, whether they are all but these, and these; no digest for all types."""
    if claim.types is None and not claim.excluded_types:
        return "", True, []
    # For these claims only: it brings in all digests of OpenSSL, which most processes never use.
    import hashlib

    excluding = claim.types is None
    types = sorted(claim.excluded_types if claim.types is None else claim.types - claim.excluded_types)
    text = json.dumps([excluding, types], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest(), excluding, types
