"""The doctor: whether all is as it should be, on any store, and what to do if it is not.

It changes nothing, and what it costs does not grow with the tasks: it looks at samples, at the tally and at records.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead._version import __version__
from fairlead.admin.keys.service import Keyring
from fairlead.admin.quarantine.service import QuarantineRecords
from fairlead.admin.schedules.service import Schedules
from fairlead.admin.workers.service import Workers
from fairlead.core.errors import StoreError
from fairlead.core.explain.explanation import sweep_is_late
from fairlead.core.health.diagnosis import (
    Diagnosis,
    Examination,
    Finding,
    Level,
    bound_of,
    clock_offset,
    dead_letters,
    overdue,
    quarantine,
    unserved,
)
from fairlead.core.instant import AT_ONCE, MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.core.schedule import ScheduleEntry
from fairlead.core.secret_mask import masked_text
from fairlead.core.task import State, Task
from fairlead.engine.dependencies import released_at
from fairlead.engine.engine import Engine
from fairlead.engine.runtime.clock import Clock, SystemClock
from fairlead.engine.stats import Stats, stats_of
from fairlead.engine.worker_records import WORKER_WORDS, WorkerRecord, WorkerState
from fairlead.storage.deadline import share
from fairlead.storage.protocol import Examined
from fairlead.storage.values import Filter, Tally

_ALARMS: Final = 1_000
"""How many overdue alarms are looked at."""
_SAMPLE: Final = 20
"""How many ended tasks of each state are looked at."""
_NOTHING: Final = "doctor"
"""A kind of record that there is none of."""
_BRIEFLY: Final = 1.0
"""Seconds for each further look, once one was waited for in vain."""
_SLOW: Final[Span] = 250 * MILLISECOND
_FILES: Final = 1_024
_LIBRARIES: Final = ("msgspec", "uvloop", "hiredis", "psycopg", "starlette", "uvicorn")


class Doctor:
    """Examines one store and what runs on it."""

    def __init__(
        self,
        engine: Engine,
        workers: Workers,
        schedules: Schedules,
        quarantine: QuarantineRecords,
        *,
        host: Clock | None = None,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._schedules = schedules
        self._set_aside = quarantine
        self._store = engine.store
        self._settings = engine.settings
        self._clock = engine.clock
        self._host = host or SystemClock()
        self._examination: Examination | None = None
        self._longest = math.inf
        """Seconds that a look may take, besides the deadline of each call."""

    async def diagnose(self) -> Diagnosis:
        """Everything that was looked at, with what to do about what is not as it should be."""
        findings = list(_here())
        # What one part of the store cannot answer must not hide what the others say; but nobody waits for each as long
        # as for the first.
        for what, look in (
            ("store", self._examined),
            ("store", self._times),
            ("tasks", self._tasks),
            ("API keys", self._keys),
            ("queues and workers", self._fleet),
            # Last: what the others meet, they set aside.
            ("quarantine", self._quarantine),
        ):
            began = self._host.monotonic()
            try:
                with share(1, self._longest):
                    findings += await look()
            except StoreError as error:
                findings.append(_failed(what, error))
                if self._host.monotonic() - began >= SECOND:
                    self._longest = _BRIEFLY
        return Diagnosis(
            tier=None if self._examination is None else self._examination.tier,
            # What a store or the system says of itself may quote what it was told.
            findings=tuple(replace(each, value=masked_text(each.value)) for each in findings),
        )

    async def _examined(self) -> Iterable[Finding]:
        """What the store says of itself."""
        if isinstance(self._store, Examined):
            self._examination = await self._store.examine()
        return () if self._examination is None else self._examination.findings

    @property
    def _patience(self) -> Span:
        """How late something may be before someone must have failed to do it."""
        return max(MINUTE, 2 * self._settings.lease)

    async def _times(self) -> Iterable[Finding]:
        """How soon the store answers, and how far its clock is from this host's."""
        began = self._host.monotonic()
        await self._store.scan(_NOTHING)
        took = self._host.monotonic() - began
        slow = took >= _SLOW
        store = Finding(
            what="store",
            level=Level.YELLOW if slow else Level.GREEN,
            value=f"answers in {took / MILLISECOND:.1f} ms",
            remedy="look at the network and the store's load: every submit and claim takes as long" if slow else "",
        )
        before = self._host.now()
        answer = await self._store.time()
        # Half the round trip is taken to have passed since it answered.
        offset = None if answer is None else (before + self._host.now()) // 2 - answer
        return store, clock_offset(offset)

    async def _tasks(self) -> Iterable[Finding]:
        """Tasks that were left behind."""
        return await self._sweep(self._clock.now()), await self._retention()

    async def _sweep(self, now: Instant) -> Finding:
        """Alarms that no one has answered: also those of tasks that are executing with no live worker."""
        alarms = await self._store.due(now - self._settings.sweep_interval, _ALARMS)
        released = [task for task in alarms if task.status.alarm == AT_ONCE]
        since = {task.id: await released_at(self._store, task) for task in released[:_SAMPLE]}
        since |= {task.id: task.status.alarm for task in alarms if task.status.alarm}
        late = [task for task in alarms if task.id in since and self._is_late(task, since[task.id], now)]
        states = Counter(task.state for task in late)
        leases, due = states[State.EXECUTING], states[State.SCHEDULED]
        oldest = min((since[task.id] for task in late), default=now)
        return overdue(leases, due, len(late) - leases - due, now - oldest, more=len(alarms) == _ALARMS)

    def _is_late(self, task: Task, since: Instant, now: Instant) -> bool:
        """Whether a sweep has left an alarm for longer than one that runs would."""
        if task.state is State.SCHEDULED:
            return sweep_is_late(since, now, self._settings.sweep_interval)
        return since <= now - self._patience

    async def _retention(self) -> Finding:
        """Ended tasks that nothing will ever remove."""
        there = {state for lane in (await self._store.tally()).lanes for state in lane.counts}
        lasting: list[Task] = []
        for state in State:
            if state.ended and state in there:
                matching = Filter(states=frozenset({state}))
                oldest = await self._store.find(matching, limit=_SAMPLE, newest_first=False)
                lasting += [task for task in oldest if task.status.alarm is None]
        if not lasting:
            return Finding(what="retention", value="every ended task that was looked at has its day of removal")
        return Finding(
            what="retention",
            level=Level.YELLOW,
            value=f"{len(lasting)} ended tasks are kept for ever, such as {lasting[0].id}",
            remedy=f"`fairlead discard {lasting[0].id}`, or all such by a query",
        )

    async def _keys(self) -> Iterable[Finding]:
        """API keys that are good for ever, or good no more."""
        (keys, unread), now = await Keyring(self._engine).read(), self._clock.now()
        expired = [key.name for key in keys if key.expired(now)]
        lasting = [key.name for key in keys if key.expires_at is None]
        shown = f"{len(keys):,} keys"
        if lasting:
            shown += f"; for ever good: {', '.join(lasting[:_SAMPLE])}"
        if expired:
            shown += f"; expired: {', '.join(expired[:_SAMPLE])}"
        if unread:
            shown += f"; cannot be read, and let nobody in: {', '.join(unread[:_SAMPLE])}"
            remedy = "restore or discard them: `fairlead quarantine list`; make others with `fairlead keys create`"
            return [Finding(what="API keys", level=Level.RED, value=shown, remedy=remedy)]
        remedy = "make keys that end with `fairlead keys create --expires-at`, and revoke the others"
        wanting = bool(lasting or expired)
        level = Level.YELLOW if wanting else Level.GREEN
        return [Finding(what="API keys", level=level, value=shown, remedy=remedy if wanting else "")]

    async def _fleet(self) -> Iterable[Finding]:
        """Queues, workers and schedules."""
        queue_cache = self._engine.queue_cache
        await queue_cache.refresh()
        now = self._clock.now()
        workers = await self._workers.all()
        tally = await self._store.tally()
        waiting = await self._engine.unserved(tally.lanes, workers)
        stats = stats_of(tally, now, workers, paused=queue_cache.paused, unserved=waiting)
        entries = await self._schedules.all()
        return (
            *self._queues(stats, workers),
            *self._dead_letters(tally),
            *_workers(workers),
            *_scheduled(entries, workers, now, self._patience),
        )

    async def _quarantine(self) -> Iterable[Finding]:
        """What cannot be decoded."""
        # In this order: what is damaged is set aside by whoever looks at it.
        newer = await self._set_aside.newer()
        counts = Counter(found.kind for found in await self._set_aside.all())
        return [quarantine(counts, newer)]

    def _dead_letters(self, tally: Tally) -> Iterable[Finding]:
        """Task types that have as many dead letters as someone wants to be told of."""
        counts: Counter[str] = Counter()
        for lane in tally.lanes:
            counts[lane.lane.type] += lane.counts.get(State.DEAD_LETTER, 0)
        for task_type, count in counts.items():
            many = dead_letters(task_type, count, self._settings.alert_at(task_type)) if count else None
            if many is not None:
                yield many

    def _queues(self, stats: Stats, workers: Sequence[WorkerRecord]) -> Iterable[Finding]:
        active = [worker for worker in workers if worker.takes_tasks]
        paused = [worker for worker in workers if worker.word == "paused"]
        for name, queue in stats.queues.items():
            waiting = queue.states[State.SCHEDULED] + queue.states[State.QUEUED]
            full = bound_of(name, waiting, self._engine.queue_cache.settings_of(name).queue_bound)
            if full is not None:
                yield full
            yield from unserved(name, queue.unserved)
            ready = queue.states[State.QUEUED]
            lacking = any(kind.type is None for kind in queue.unserved.first)
            if ready and not lacking and not queue.paused and not any(name in worker.queues for worker in active):
                held = next((worker.id for worker in paused if name in worker.queues), None)
                yield Finding(
                    what=f"queue {name}",
                    level=Level.YELLOW,
                    value=f"{ready:,} tasks are ready, and no active worker serves it",
                    remedy=f"start one: `fairlead worker app.tasks:app --queues {name}`"
                    if held is None
                    else f"resume one that is paused: `fairlead workers resume {held}`",
                )


def _failed(what: str, error: StoreError) -> Finding:
    return Finding(
        what=what,
        level=Level.RED,
        value=str(error),
        remedy="look at the store's own log, and run this again when it answers",
    )


def _here() -> Iterable[Finding]:
    """What this process runs on."""
    yield Finding(what="fairlead", value=f"{__version__} on Python {platform.python_version()}, {platform.system()}")
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding(what="libraries", value=", ".join(found))
    try:
        import resource
    except ImportError:  # There is no such limit, as on Windows.
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < _FILES
    yield Finding(
        what="open files",
        level=Level.YELLOW if few else Level.GREEN,
        value=f"at most {soft:,} in one process" if soft != resource.RLIM_INFINITY else "no limit",
        remedy=f"raise it to {_FILES:,} or more: `ulimit -n`, or LimitNOFILE= of the service" if few else "",
    )


def _workers(workers: Sequence[WorkerRecord]) -> Iterable[Finding]:
    states = Counter(worker.word for worker in workers)
    shown = ", ".join(f"{states[word]:,} {word}" for word in WORKER_WORDS if states[word]) or "none"
    dead = states["dead"]
    yield Finding(
        what="workers",
        level=Level.YELLOW if dead else Level.GREEN,
        value=shown,
        remedy="`fairlead workers show ID` says what became of a dead one's tasks; it is forgotten in an hour"
        if dead
        else "",
    )
    live = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    versions = sorted({worker.version for worker in live if worker.version} - {__version__})
    if versions:
        yield Finding(
            what="versions",
            level=Level.YELLOW,
            value=f"this is {__version__}, and workers run {', '.join(versions)}",
            remedy="finish the rollout, if one is under way; a worker in another language may have versions of its own",
        )


def _scheduled(
    entries: Sequence[ScheduleEntry], workers: Sequence[WorkerRecord], now: Instant, patience: Span
) -> Iterable[Finding]:
    """Schedules that nobody fires, and those whose task nobody could run."""
    live = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    anything = any(worker.types is None for worker in live)
    known = {task_type for worker in live for task_type in worker.types or ()}
    late = [entry for entry in entries if (at := entry.attention) is not None and at < now - patience]
    nobody = [] if anything or not live else [e for e in entries if e.schedule.submission.type not in known]
    if late:
        yield Finding(
            what="schedules",
            level=Level.RED,
            value=f"{len(late):,} should have fired and did not, such as {late[0].schedule.name}",
            remedy="start a worker or a server on this store: each fires schedules",
        )
    for entry in nobody:
        yield Finding(
            what=f"schedule {entry.schedule.name}",
            level=Level.YELLOW,
            value=f"no live worker runs its task type {entry.schedule.submission.type}",
            remedy=f"start a worker that does, or `fairlead schedule remove {entry.schedule.name}`",
        )
    if not late and not nobody:
        yield Finding(what="schedules", value=f"{len(entries):,}, none of them late")
