"""Admission: what a server does not take while tasks flood in. The rules are in `fairlead.core.queues.admission`.

Whatever is submitted over HTTP comes by here: single tasks on whichever way, batches, streams of lines and schedules
that are run now. It counts tasks, not requests. What queues tasks again that were submitted before, such as a replay,
does not, and what workers and operators do is never refused here. The tiers of single queues hold for every way to
submit, so they are kept where tasks are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import AdmissionRefused, StoreError
from fairlead.core.instant import SECOND, Span
from fairlead.core.queues.admission import (
    AdmissionRule,
    AdmissionSettings,
    is_listed,
    refusal_above,
    refusal_in_flight,
    refusal_over,
    whole_seconds,
)
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.shared_rates import SharedRates, Taken
from fairlead.server.auth.credentials import Principal

_FRESH: Final[Span] = SECOND
"""How long a count of the waiting tasks is used."""


class WaitingCount:
    """How many tasks wait in all queues: counted once a second, and what was taken here since.

    What was taken while they were counted may be counted twice, until they are counted again.
    """

    def __init__(self, engine: AdminEngine) -> None:
        self._engine = engine
        self._counted = 0
        self._counted_at: Span | None = None
        self._since = 0
        """What was taken here since the count began, and what was on its way to the store then."""
        self._in_flight = 0
        self._counting: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return self._counted + self._since

    @property
    def fresh(self) -> bool:
        """Whether the count is recent enough."""
        return self._counted_at is not None and self._engine.clock.monotonic() - self._counted_at < _FRESH

    async def refresh(self) -> None:
        """Count again unless that was done within a second; those who ask at the same time are answered together."""
        if not self.fresh:
            if self._counting is None:
                self._counting = asyncio.get_running_loop().create_task(self._count())
            await asyncio.shield(self._counting)

    def take(self) -> None:
        """A task is on its way to the store."""
        self._since += 1
        self._in_flight += 1

    def arrive(self, *, stored: bool) -> None:
        """It is there, or was not stored after all."""
        self._in_flight -= 1
        if not stored:
            self._since = max(0, self._since - 1)

    async def _count(self) -> None:
        try:
            began, before, in_flight = self._engine.clock.monotonic(), self._since, self._in_flight
            try:
                tally = await self._engine.store.tally()
            except StoreError:
                if self._counted_at is None:
                    raise
                # A submit meets the same error, or can be stored: then by what was last known.
                self._counted_at = began
                return
            waits = (State.SCHEDULED, State.QUEUED)
            self._counted = sum(lane.counts.get(state, 0) for lane in tally.lanes for state in waits)
            self._since += in_flight - before
            self._counted_at = began
        finally:
            self._counting = None


class Admitted:
    """What was taken of some submits, until it is known what became of it."""

    def __init__(self, admission: Admission, requests: int, listed: Sequence[int]) -> None:
        self._admission = admission
        self._requests = requests
        self.listed = listed
        """Those whose submitters are on the allow list."""
        self.refusals: dict[int, AdmissionRefused] = {}
        """Why others were not taken."""
        self.taken: dict[int, list[Taken]] = {}
        """Those that were, and what they were counted by."""

    def arrived(self, position: int, *, stored: bool) -> None:
        """Say what became of one: it costs its submitter nothing if no new task was stored."""
        counted = self.taken.pop(position, None)
        if counted is not None:
            self._admission.count.arrive(stored=stored)
            for each in () if stored else counted:
                each.give_back()

    def leave(self) -> None:
        """The server works on them no more; of what nothing is known, tasks may be stored."""
        for position in list(self.taken):
            self.arrived(position, stored=True)
        self._admission.in_flight -= self._requests


class Admission:
    """What one server takes."""

    def __init__(self, engine: AdminEngine, settings: AdmissionSettings, metrics: Metrics | None) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._listed = engine.settings.admission_allow
        self._rates = SharedRates(engine.store, engine.clock, settings.rates)
        self.count = WaitingCount(engine)
        """How many tasks wait."""
        self.in_flight = 0
        """How many requests that submit are worked on."""

    @property
    def on(self) -> bool:
        """Whether there is anything that a submit could be refused by; if not, nobody needs to ask."""
        return bool(self._settings or self._listed or self._engine.queue_cache.tiers)

    async def admit(self, submissions: Sequence[Submission], callers: Sequence[Principal], requests: int) -> Admitted:
        """Take what may be taken of some submits, which came in so many requests; `leave` ends it."""
        queue_cache = self._engine.queue_cache
        if queue_cache.stale:
            await queue_cache.refresh()
        tenants = [queue_cache.tenants.get(each.queue, each.tenant) for each in submissions]
        listed = [
            at
            for at, (caller, tenant) in enumerate(zip(callers, tenants, strict=True))
            if is_listed(self._listed, caller.name if caller.key is not None else None, tenant)
        ]
        if self._settings.tiers:
            await self.count.refresh()
        at_once = self._room(requests)
        admitted = Admitted(self, at_once, listed)
        self.in_flight += at_once
        try:
            wanted = self._shed(admitted, len(submissions), requests, at_once)
            wanted = self._held_by_tiers(admitted, submissions, wanted)
            for position in wanted:
                admitted.taken[position] = []
                self.count.take()
            if self._settings.rates:
                keys = {at: (callers[at].key or "", None) for at in wanted}
                wanted = await self._held_by_rates(admitted, wanted, keys)
                named = {at: (name, name) for at in wanted if (name := tenants[at]) is not None}
                await self._held_by_rates(admitted, list(named), named)
        except BaseException:
            admitted.leave()
            raise
        for refusal in admitted.refusals.values():
            self.note(refusal)
        return admitted

    def note(self, refusal: AdmissionRefused) -> None:
        """Count a task that was not taken."""
        if self._metrics is not None:
            self._metrics.refused(refusal.rule)

    def _room(self, requests: int) -> int:
        """How many of some requests the server can work on."""
        most = self._settings.in_flight
        return requests if most is None else max(0, min(requests, most - self.in_flight))

    def _shed(self, admitted: Admitted, tasks: int, requests: int, at_once: int) -> list[int]:
        """The tasks of the requests that the server can work on: of several, each is of one task."""
        if at_once == requests:
            return list(range(tasks))
        refusal = refusal_in_flight(self.in_flight)
        admitted.refusals.update(dict.fromkeys(range(at_once, tasks), refusal))
        return list(range(at_once))

    def _held_by_tiers(self, admitted: Admitted, submissions: Sequence[Submission], wanted: list[int]) -> list[int]:
        """Those of the tasks that the tiers let through."""
        tiers = self._settings.tiers
        if not tiers:
            return wanted
        passing: list[int] = []
        listed = set(admitted.listed)
        for at in wanted:
            said = submissions[at]
            priority = self._engine.queue_cache.settings_of(said.queue).defaults.priority
            refusal = refusal_above(
                tiers,
                self.count.waiting + len(passing),
                priority if said.priority is None else said.priority,
                listed=at in listed,
            )
            if refusal is None:
                passing.append(at)
            else:
                admitted.refusals[at] = refusal
        return passing

    async def _held_by_rates(
        self, admitted: Admitted, wanted: list[int], whose: Mapping[int, tuple[str, str | None]]
    ) -> list[int]:
        """Those of the tasks that the rates of their submitters let through, the first ones of each."""
        by_submitter: dict[tuple[str, str | None], list[int]] = {}
        for at in wanted:
            by_submitter.setdefault(whose[at], []).append(at)
        passing: list[int] = []
        for (name, tenant), positions in by_submitter.items():
            kind = AdmissionRule.KEY_RATE if tenant is None else AdmissionRule.TENANT_RATE
            taken = await self._rates.take(f"{kind}:{name}", len(positions))
            for at in positions[: taken.number]:
                admitted.taken[at].append(taken)
                passing.append(at)
            if taken.refused is not None:
                seconds = whole_seconds(taken.refused.until - self._engine.clock.now())
                refusal = refusal_over(taken.refused.rate, tenant=tenant, seconds=seconds)
                for at in positions[taken.number :]:
                    admitted.refusals[at] = refusal
                    admitted.arrived(at, stored=False)
        return passing
