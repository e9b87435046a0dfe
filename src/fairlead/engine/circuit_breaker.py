"""The circuits as one engine knows them: outcomes are counted here, and shared about once a second.

A circuit is one record per task type, changed by compare-and-set. An engine counts the outcomes that it settles and
adds them to the record now and then, never once per task; only a probe's answer is told at once. That a circuit has
turned is rung for like a change of a queue, so that every engine knows it within a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.circuit import (
    Circuit,
    CircuitState,
    ProbeAnswer,
    answered,
    confirmed,
    counted,
    free_probes,
    reserved,
    verdict,
)
from fairlead.core.errors import StoreError
from fairlead.core.identity import LeaseToken, WorkerId, registered_token, registration_of
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.settings import Settings
from fairlead.core.task import Status, Task
from fairlead.engine.events.feed import Publisher
from fairlead.engine.events.types import CircuitData, CircuitEvent, EventType
from fairlead.engine.records import Form, Records, decoder
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.telemetry import Logger
from fairlead.storage.values import Claim

log = Logger("fairlead.circuits")

KIND: Final = "circuit"
"""The kind of record that the circuit of a task type is."""

BELL: Final = "queues_changed"
"""The kind, and the name, of the record that is rung when a circuit has turned or a queue was changed."""

_SHARE_INTERVAL: Final[Span] = SECOND
_PROBE_INTERVAL: Final[Span] = SECOND
"""How long a worker for which there was nothing to probe with does not try again."""
_TRIES: Final = 20

_EVENTS: Final = {
    CircuitState.OPEN: EventType.CIRCUIT_OPENED,
    CircuitState.HALF_OPEN: EventType.CIRCUIT_HALF_OPEN,
    CircuitState.CLOSED: EventType.CIRCUIT_CLOSED,
}

FORM: Final = Form(kind=KIND, decode=decoder(Circuit))

Step: TypeAlias = Callable[[Circuit, Instant], Circuit]


class _Uncounted:
    """What became of attempts of one type, not yet shared."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.answers: list[ProbeAnswer] = []

    def add(self, other: _Uncounted) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.answers += other.answers

    def applied(self, circuit: Circuit, now: Instant) -> Circuit:
        return answered(counted(circuit, self.passed, self.failed, now), self.answers, now)


class Breakers:
    """The circuits of one store, as one engine counts, heeds and turns them."""

    def __init__(
        self,
        records: Records,
        settings: Settings,
        clock: Clock,
        publisher: Publisher,
        new_token: Callable[[], LeaseToken],
    ) -> None:
        self._records = records
        self._store = records.store
        self._settings = settings
        self._clock = clock
        self._publisher = publisher
        self._new_token = new_token
        self._known: dict[str, tuple[Circuit, int]] = {}
        """By task type: its circuit, and the version of its record."""
        self._uncounted: dict[str, _Uncounted] = {}
        self._answered = False
        """Whether a probe of this engine was answered, so that sharing should not wait."""
        self._shared_at: Span | None = None
        self._sharing = False
        self._tried: dict[tuple[str, WorkerId], Span] = {}
        self.withheld: frozenset[str] = frozenset()
        """The task types whose tasks are not claimed but as probes."""

    @property
    def circuits(self) -> dict[str, Circuit]:
        """The circuits as they were last read, by task type."""
        return {task_type: circuit for task_type, (circuit, _) in self._known.items()}

    async def find(self, task_type: str) -> Circuit | None:
        """The circuit of a task type as it is stored, if it has one."""
        kept = (await self._records.read(FORM)).kept
        return next((each.value for each in kept if each.name == task_type), None)

    @property
    def watching(self) -> bool:
        """Whether any task type has a circuit."""
        return bool(self._known)

    @property
    def due(self) -> bool:
        """Whether it is time to share what was counted."""
        if not self._uncounted or self._sharing:
            return False
        shared = self._shared_at
        return self._answered or shared is None or self._clock.monotonic() - shared >= _SHARE_INTERVAL

    def count(self, task: Task, after: Status) -> None:
        """Count what became of an attempt of a task that stood like this while it was held."""
        known = self._known.get(task.spec.type)
        if known is None:
            return
        status, passed = known[0].status, verdict(after)
        uncounted = self._uncounted.setdefault(task.spec.type, _Uncounted())
        if status.state is CircuitState.CLOSED:
            # What began before the circuit turned tells of the time before.
            if passed is not None and (task.status.started_at or 0) >= status.since:
                uncounted.passed += passed
                uncounted.failed += not passed
        elif task.status.lease is not None:
            token = task.status.lease.token
            uncounted.answers.append(ProbeAnswer(token, passed))
            self._answered = self._answered or any(probe.token == token for probe in status.probes)

    async def share(self) -> None:
        """Add what was counted to the records; a store that cannot take it is told later."""
        self._sharing = True
        uncounted, self._uncounted = self._uncounted, {}
        self._answered, self._shared_at = False, self._clock.monotonic()
        try:
            if any(not self._knows(task_type, each.answers) for task_type, each in uncounted.items()):
                await self.reread()
            for task_type in list(uncounted):
                await self._change(task_type, uncounted[task_type].applied)
                del uncounted[task_type]
        except StoreError:
            for task_type, each in uncounted.items():
                self._uncounted.setdefault(task_type, _Uncounted()).add(each)
        finally:
            self._sharing = False

    def holds(self, task_type: str) -> bool:
        """Whether the tasks of a type wait because its circuit lets none of them through now."""
        known = self._known.get(task_type) if task_type in self.withheld else None
        return known is not None and free_probes(known[0], self._clock.now()) == 0

    async def probe(self, claim: Claim, paused: frozenset[str]) -> list[Task]:
        """The tasks that circuits let through as probes, of those that a claim would take but for that."""
        tasks: list[Task] = []
        types = self.withheld - paused
        for task_type in sorted(types if claim.types is None else types & claim.types):
            room = claim.limit - len(tasks)
            if room == 0 or self.holds(task_type) or not self._may_try(task_type, claim.worker):
                continue
            taken = await self._probe(task_type, replace(claim, limit=room))
            if not taken:
                self._tried[task_type, claim.worker] = self._clock.monotonic()
            tasks += taken
        return tasks

    async def reread(self) -> None:
        """Read all circuits anew."""
        read = await self._records.read(FORM)
        self._known = {each.name: (each.value, each.version) for each in read.kept}
        self._heed()

    def tell(self, task_type: str, after: Circuit) -> None:
        """Tell and log that a circuit has turned, and now stands like this."""
        now = self._clock.now()
        outcomes, failures = after.tally(now)
        data = CircuitData(task_type=task_type, outcomes=outcomes, failures=failures)
        self._publisher.tell(CircuitEvent(_EVENTS[after.state], now, data))
        match after.state:
            case CircuitState.OPEN:
                log.warning(
                    "circuit breaker of %s is open: %d of %d attempts failed; its tasks wait for %g s",
                    task_type,
                    failures,
                    outcomes,
                    after.settings.open_for / SECOND,
                )
            case CircuitState.HALF_OPEN:
                log.info("circuit breaker of %s is half-open: trying %d tasks", task_type, after.settings.probes)
            case CircuitState.CLOSED:
                log.info("circuit breaker of %s is closed: its tasks are claimed again", task_type)

    async def _probe(self, task_type: str, claim: Claim) -> list[Task]:
        token, granted = registered_token(self._new_token(), registration_of(claim.token)), 0

        def reserve(circuit: Circuit, now: Instant) -> Circuit:
            nonlocal granted
            after, granted = reserved(circuit, token, claim.limit, now + self._settings.lease, now)
            return after

        try:
            await self._change(task_type, reserve)
        except StoreError:
            return []
        if granted == 0:
            return []
        only = frozenset({task_type})
        tasks = await self._store.claim(
            replace(claim, types=only, excluded_types=frozenset(), limit=granted, token=token)
        )
        longest = max((task.status.timeout for task in tasks), default=0)
        # Whoever holds a probe answers by its timeout, or the sweep does when its lease has ended. After that it is
        # given up, or a process that dies at the wrong moment would keep the circuit half-open.
        patience = longest + self._settings.grace + 2 * self._settings.lease
        with contextlib.suppress(StoreError):
            await self._change(
                task_type, lambda circuit, now: confirmed(circuit, token, len(tasks), now + patience, now)
            )
        return tasks

    async def _change(self, task_type: str, step: Step) -> None:
        """Take a step by compare-and-set. If others are always faster, it is not taken: it was about one second."""
        for _ in range(_TRIES):
            known = self._known.get(task_type)
            if known is None:
                return
            before, version = known
            after = step(before, self._clock.now())
            if after == before:
                return
            stored = await self._store.put(KIND, task_type, FORM.write(after), expected=version)
            if stored is not None:
                self._known[task_type] = after, stored
                self._heed()
                if after.state is not before.state:
                    await self._store.put(BELL, BELL, b"")
                    self.tell(task_type, after)
                return
            await self.reread()

    def _knows(self, task_type: str, answers: Sequence[ProbeAnswer]) -> bool:
        """Whether these answers are to probes that this engine knows of; it need not know all."""
        known = self._known.get(task_type)
        probes = {probe.token for probe in known[0].status.probes} if known else set()
        return all(answer.token in probes for answer in answers)

    def _may_try(self, task_type: str, worker: WorkerId) -> bool:
        tried = self._tried.get((task_type, worker))
        return tried is None or self._clock.monotonic() - tried >= _PROBE_INTERVAL

    def _heed(self) -> None:
        self.withheld = frozenset(
            task_type for task_type, (circuit, _) in self._known.items() if circuit.state is not CircuitState.CLOSED
        )
        if not self.withheld:
            self._tried.clear()
