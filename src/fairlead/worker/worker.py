"""The worker: claims tasks for its free slots, runs them, settles them, and leaves without losing any."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from fairlead.core.errors import InvalidSettings, LeaseLost, StoreError, StoreUnavailable
from fairlead.core.events import Failed, HandedBack, Outcome
from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, MINUTE, SECOND, seconds
from fairlead.core.task import Progress, Task
from fairlead.core.validation import Duration, bad_setting, check_count, check_flag, check_text, setting_of
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.telemetry import Logger, active
from fairlead.storage.values import Beat, Pulse
from fairlead.worker.attempt import PATIENCE, Attempt, Stop, Threads
from fairlead.worker.handlers import HandlerPlace, Handlers
from fairlead.worker.isolation.fork_guard import hear_again, stay
from fairlead.worker.isolation.pool import READY_WITHIN, Cells
from fairlead.worker.keeper.keeper import Keeper
from fairlead.worker.life import WorkerLife
from fairlead.worker.loop_watch import LoopWatch
from fairlead.worker.outcome import unsettled
from fairlead.worker.resources import portal_to
from fairlead.worker.slots import Slots, WorkerSlots, cores, usual_capacity
from fairlead.worker.source import Outage, Registration, Source
from fairlead.worker.spans import Traces
from fairlead.worker.task_log import FailureLog

if TYPE_CHECKING:
    from fairlead.engine.metrics.collector import Metrics

log = Logger("fairlead.worker")

Result = TypeVar("Result")

POLL_INTERVAL: Final = 1.0
"""How long an idle worker sleeps, in seconds, if nothing wakes it: signals are hints, this is the truth."""

_TIME_INTERVAL: Final = 0.1
_REPORT_INTERVAL: Final = 0.5
_UNSERVED_INTERVAL: Final = 60.0
_UNKNOWN_TYPE_DELAY: Final = 10 * SECOND
_LAST_WORDS: Final = 5.0
_BATCH: Final = 500
_LONGEST_READY: Final = 20 * MINUTE


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker behaves."""

    concurrency: int = 100
    """How many `async def` handlers run at once; of each other kind no more do, unless it is said."""
    thread_concurrency: int | None = None
    """How many `def` handlers run at once; None for four more than there are processors, and ten at most."""
    isolated_concurrency: int | None = None
    """How many handlers with `isolate=True` run at once; None for one for each processor."""
    drain_seconds: Duration = 30.0
    """How long running tasks may go on once the worker is asked to leave: seconds, or a timedelta."""
    app: str | None = None
    """The module of the app that the worker was started with: the processes of isolated handlers import it first."""
    ready_seconds: Duration = READY_WITHIN
    """How long such a process may take to get ready for a task, which is no part of the task's timeout."""
    max_tasks: int | None = None
    """After how many tasks the worker leaves, for another process to take its place; None for never."""
    max_memory: int | None = None
    """Above how many bytes of memory it does; None for never. It is looked at once a second."""
    until_empty: bool = False
    """Whether it leaves when nothing is ready for it and nothing runs."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, 1, LATEST, bad_setting)
        for name in ("thread_concurrency", "isolated_concurrency"):
            if (said := getattr(self, name)) is not None:
                check_count(name, said, 1, LATEST, bad_setting)
        for name in ("max_tasks", "max_memory"):
            if (said := getattr(self, name)) is not None:
                check_count(name, said, 1, LATEST, bad_setting)
        check_flag("until_empty", self.until_empty, bad_setting)
        setting_of("drain_seconds", self.drain_seconds)
        if not 0 < setting_of("ready_seconds", self.ready_seconds) <= _LONGEST_READY:
            raise InvalidSettings(
                f"ready_seconds {self.ready_seconds} is out of range; use more than 0 and 20 minutes at most"
            )
        if self.app is not None:
            check_text("app", self.app, refuse=bad_setting)

    @property
    def capacities(self) -> dict[HandlerPlace, int]:
        """How many handlers of each kind run at once."""
        said = {
            HandlerPlace.LOOP: self.concurrency,
            HandlerPlace.THREAD: self.thread_concurrency,
            HandlerPlace.PROCESS: self.isolated_concurrency,
        }
        processors = cores()
        return {
            place: usual_capacity(place, self.concurrency, processors) if most is None else most
            for place, most in said.items()
        }

    @property
    def drain(self) -> float:
        """`drain_seconds`, in seconds whatever it was said in."""
        return seconds(setting_of("drain_seconds", self.drain_seconds))

    @property
    def ready(self) -> float:
        """`ready_seconds`, in seconds whatever it was said in."""
        return seconds(setting_of("ready_seconds", self.ready_seconds))


class Worker:
    """Runs tasks from one source until it is asked to leave."""

    def __init__(
        self,
        source: Source,
        handlers: Handlers,
        keeper: Keeper,
        settings: WorkerSettings | None = None,
        *,
        metrics: Metrics | None = None,
    ) -> None:
        handlers.check()
        self._source = source
        self._handlers = handlers
        self._keeper = keeper
        self._settings = settings or WorkerSettings()
        self._threads = Threads()
        self._cells = Cells(
            self._settings.app,
            keeper.allow,
            self._settings.ready,
            _LAST_WORDS if handlers.resources.lifespan is not None else 0.0,
        )
        self._equips = not handlers.are_plain
        self._state: object = None
        """What the lifespan has yielded."""
        self._startup: asyncio.Timeout | None = None
        self._slots = WorkerSlots(handlers, self._settings.capacities, source.interval)
        self._busy = asyncio.Event()
        """Cleared when nothing runs: then no attempt's time is up, and none has anything to report."""
        self._attempts: dict[TaskId, Attempt] = {}
        self._lives: set[asyncio.Task[Any]] = set()
        self._left_behind: set[asyncio.Task[None]] = set()
        """Attempts whose outcome was said though their handlers have not ended."""
        self._paused = False
        """Whether the log says that the worker is paused."""
        self._unanswered = False
        """Whether the store may have granted tasks to this worker and has not said so."""
        self._reports: dict[TaskId, Beat] = {}
        self._outcomes: list[Settlement] = []
        self._settling = False
        self._home = contextvars.copy_context()
        self._traces = Traces()
        self._life = WorkerLife(self._settings.max_tasks, self._settings.max_memory)
        self._watch = LoopWatch(self._named, time.monotonic)
        self._failures = FailureLog()
        self._leaving = asyncio.Event()
        self._asked = False
        """Whether somebody asked it to leave: it may do so by itself before."""
        self._leaving_now = asyncio.Event()
        self._beat_failed: Callable[[int], None] = lambda count: None
        if metrics is not None:
            self._beat_failed = metrics.beat_failed
            metrics.employ(lambda: self._slots.used)

    @property
    def recycles(self) -> bool:
        """Whether it has left for another process to take its place."""
        return self._life.recycles and not self._asked

    def leave(self) -> None:
        """Claim no more and let running tasks end, for good; asked a second time, hand them back at once."""
        if self._asked:
            self._leaving_now.set()
        self._asked = True
        self._leaving.set()
        if self._startup is not None:
            self._startup.reschedule(0)

    async def run(self) -> None:
        """Work until asked to leave, then drain; all within the lifespan of the app."""
        stack = contextlib.AsyncExitStack()
        if self._handlers.resources.lifespan is not None and not await self._opens(stack):
            return
        try:
            await self._work()
        finally:
            await self._shut(stack)

    async def _opens(self, stack: contextlib.AsyncExitStack) -> bool:
        """Enter the lifespan, to be left with the stack; whether that was done before the worker was asked to leave."""
        try:
            async with asyncio.timeout(None) as self._startup:
                self._state = await stack.enter_async_context(self._handlers.resources.open())
        except TimeoutError:
            if not self._leaving.is_set():
                raise
            return False
        finally:
            self._startup = None
        return True

    async def _shut(self, stack: contextlib.AsyncExitStack) -> None:
        """Leave the lifespan, unless that takes longer than tasks may take to end."""
        within = max(self._settings.drain, PATIENCE)
        patience = asyncio.timeout(within)
        try:
            async with patience:
                await stack.aclose()
        except TimeoutError:
            if not patience.expired():
                raise
            log.warning("the lifespan has not ended within %g s; leaving it as it is", within)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Within the lifespan of the app, for those who do not `run` the worker but have it claim `once`."""
        async with self._handlers.resources.open() as self._state:
            yield

    async def _work(self) -> None:
        self._life.check()
        await self._keeper.start(self._heard, self._beat_failed)
        self._watch.start()
        registration = Registration(self._source, self._slots, lambda: len(self._attempts), self._beat_failed)
        present = asyncio.create_task(registration.keep(self._leaving, self.leave))
        duties = [
            asyncio.create_task(duty)
            for duty in (
                self._leaving.wait(),
                self._life.keep(),
                self._keep_claiming(),
                self._keep_time(),
                self._keep_reporting(),
                self._keep_warning(),
                self._source.upkeep(),
            )
        ]
        try:
            done, _ = await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
            for duty in done:
                duty.result()
        finally:
            self._leaving.set()
            # Nothing tells it any more that the loop comes round.
            self._watch.close()
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)
            await self._drain()
            present.cancel()
            await asyncio.gather(present, return_exceptions=True)
            await registration.end()
            await self._keeper.close()
            await self.close()
        if left := self._left():
            raise StoreUnavailable(f"{left}; they run again when their leases have ended")

    async def close(self) -> None:
        """End the processes and threads that run nothing any more; `run` does so when it leaves."""
        self._watch.close()
        await self._cells.close()
        self._threads.close()

    async def once(self) -> int:
        """Claim as many tasks as there is room for whatever their kinds are, and start them; how many."""
        tasks = await self._source.claim(min(self._slots.room, _BATCH))
        if tasks:
            self._begin(tasks)
        return len(tasks)

    async def idle(self) -> None:
        """Return when nothing runs and everything is settled."""
        while self._lives:
            done, _ = await asyncio.wait(self._lives)
            self._lives -= done

    async def finish(self, look: Callable[[Sequence[Attempt]], None]) -> None:
        """`idle`, and until then stop attempts whose time is up, as `run` does, and have somebody look at them."""
        timing = asyncio.create_task(self._keep_time())
        try:
            while self._lives:
                done, _ = await asyncio.wait(self._lives, timeout=_TIME_INTERVAL)
                self._lives -= done
                look(list(self._attempts.values()))
        finally:
            timing.cancel()
            await asyncio.gather(timing, return_exceptions=True)

    async def _keep_claiming(self) -> None:
        outage = Outage("claim tasks")
        while not self._leaving.is_set():
            due = () if self._slots.are_idle else await self._slots.due()
            await self._keeper.ready()
            claiming = self._track(self._claim(due))
            try:
                # What is under way when the worker leaves may have taken tasks: it comes to its end, by `_drain`.
                await asyncio.shield(claiming)
            except asyncio.CancelledError:
                if not due:
                    # Nor is it given up then, but called back: tasks that it has taken come all the same.
                    claiming.cancel()
                raise
            except StoreError as error:
                self._slots.stir()
                await outage.wait(error)
            else:
                outage.end()
                self._tell_pause()

    def _tell_pause(self) -> None:
        """Say in the log, once, that the worker was paused or resumed."""
        if self._source.paused is not self._paused:
            self._paused = not self._paused
            log.info("paused: claiming no more until resumed" if self._paused else "resumed: claiming again")

    async def _claim(self, due: Sequence[Slots]) -> None:
        """Claim for these kinds of slots, or for any once there is something if none is due; start what was claimed.

        Whatever ends this says what was granted, but for a store that was asked and does not answer.
        """
        self._unanswered = True
        try:
            await (self._claim_for(due) if due else self._wait())
        except BaseException as error:
            self._unanswered = isinstance(error, StoreUnavailable)
            raise
        self._unanswered = False

    async def _claim_for(self, due: Sequence[Slots]) -> None:
        """Claim for each of these kinds of slots, the only one there is without a word on types."""
        claims: list[tuple[Slots, int, int]] = []
        for slots in due:
            asked = min(slots.wish, self._life.left)
            if asked <= 0 or (claims and self._leaving.is_set()):
                continue
            tasks = await self._source.claim(asked, slots.types if len(self._slots.kinds) > 1 else None)
            if tasks:
                self._begin(tasks)
            claims.append((slots, asked, len(tasks)))
        self._slots.note(claims)

    async def _wait(self) -> None:
        """Wait until there is something for any kind of slots, and start what was claimed of it."""
        asked = min(self._slots.wish, self._life.left)
        if asked <= 0:
            await self._leaving.wait()
            return
        tasks = await (
            self._look_once(asked) if self._settings.until_empty else self._source.wait(asked, POLL_INTERVAL)
        )
        if tasks:
            self._begin(tasks)
        self._slots.note_wait(asked, None if tasks is None else len(tasks))

    async def _look_once(self, asked: int) -> list[Task]:
        """Claim what is ready; if there is nothing and nothing runs here either, the worker's work is done."""
        idle = not self._attempts
        tasks = await self._source.claim(asked)
        if not tasks and idle:
            self._life.end("nothing is ready, and nothing runs")
        elif not tasks and (running := [each.life for each in self._attempts.values() if each.life is not None]):
            await asyncio.wait(running, timeout=POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
        return tasks

    def _begin(self, tasks: list[Task]) -> None:
        """Hold tasks that were claimed, and start them."""
        self._life.count(len(tasks))
        # Not when the loop comes round again: the first of them may keep it from that.
        self._watch.turn()
        self._busy.set()
        self._keeper.hold(tasks)
        loop, traced = asyncio.get_running_loop(), active()
        for task in tasks:
            self._start(task, loop, traced)

    def _start(self, task: Task, loop: asyncio.AbstractEventLoop, traced: bool) -> None:
        handler = self._handlers.get(task.spec.type)
        if handler is None:
            # Claims name the types that are known, so this is a source that does not heed them.
            log.warning("task %s has the unknown type %r; handing it back", task.id, task.spec.type)
            self._say(Settlement(task, HandedBack(_UNKNOWN_TYPE_DELAY)))
            return
        slots = self._slots.of(handler.place)
        slots.free -= 1
        task_id = task.spec.id
        if task_id in self._attempts:
            # Given to this worker a second time, it is no longer what the first attempt holds.
            self._heard(task_id, Pulse.LOST)
        attempt = Attempt(task, handler, self._threads, self._cells, self._progressed, slots.give_back)
        self._attempts[task_id] = attempt
        if self._equips:
            attempt.equip(self._state, portal_to(loop))
        if self._leaving.is_set():
            attempt.stop(Stop.HAND_BACK)
        attempt.life = life = loop.create_task(self._live(attempt, traced))
        self._lives.add(life)

    async def _live(self, attempt: Attempt, traced: bool) -> None:
        """One attempt, until there is something to say of it."""
        try:
            if traced:
                self._traces.begin(attempt.task)
            outcome = await attempt.run()
            if not attempt.is_left_behind:
                self._end(attempt, outcome)
        finally:
            # What every attempt needs is done here and not by a callback, which costs a turn of the event loop.
            if attempt.life is not None:
                self._lives.discard(attempt.life)

    def _end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Say how an attempt ended, if there is anything to say."""
        task = attempt.task
        if self._traces.under_way:
            self._traces.end(task, outcome)
        task_id = task.spec.id
        if self._attempts.get(task_id) is attempt:
            del self._attempts[task_id]
            self._reports.pop(task_id, None)
        if outcome is None:
            self._keeper.drop([task])
            return
        if isinstance(outcome, Failed):
            self._failures.keep(task, attempt.error, reported=attempt.reported)
        attempt.error = None
        self._say(Settlement(task, outcome))

    def _leave_behind(self, attempt: Attempt) -> None:
        """Say how an attempt ended whose handler heeds no stop, and wait for that no longer."""
        outcome = attempt.leave_behind()
        word = "lost" if outcome is None else outcome.name
        log.warning("task %s: its handler ignores the request to stop (%s); leaving it running", attempt.task.id, word)
        if attempt.life is not None and not attempt.life.done():
            self._lives.discard(attempt.life)
            self._left_behind.add(attempt.life)
            attempt.life.add_done_callback(self._left_behind.discard)
        self._end(attempt, outcome)

    def _say(self, settlement: Settlement) -> None:
        """Have an outcome settled, along with whatever else has ended by then."""
        self._outcomes.append(settlement)
        if not self._settling:
            self._settling = True
            # In the context of the worker: that of the attempt which has ended is for what its handler does.
            self._track(self._settle(), self._home)

    async def _settle(self) -> None:
        """Say how attempts ended until it has been heard: an outcome is never dropped for an outage."""
        outage = Outage("settle tasks")
        try:
            while self._outcomes:
                batch = self._outcomes[:_BATCH]
                try:
                    await self._settle_batch(batch)
                except StoreError as error:
                    await outage.wait(error)
                else:
                    outage.end()
                    del self._outcomes[: len(batch)]
        finally:
            self._settling = False

    async def _settle_batch(self, batch: list[Settlement]) -> None:
        stay()
        failing = self._failures.expect(batch)
        try:
            answers = await self._source.settle(batch)
        except StoreError:
            raise
        except Exception as error:
            self._failures.forget(failing)
            if len(batch) > 1:
                for settlement in batch:
                    await self._settle_batch([settlement])
                return
            (said,) = batch
            log.exception("task %s: cannot store its outcome", said.task.id)
            if (instead := unsettled(said.outcome, error)) is not None:
                # Not an outage but an outcome that cannot be stored. That can be said instead.
                await self._settle_batch([Settlement(said.task, instead)])
                return
            # Not even that: its lease will end, and the task be tried again.
            self._keeper.drop([said.task])
            self._traces.settled(said.task, None, None)
            return
        for answer in answers:
            if isinstance(answer, LeaseLost):
                log.warning("task %s: lease lost before its outcome was stored; dropping the outcome", answer.task_id)
        if failing:
            for said, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Task):
                    self._failures.settled(said, answer)
            self._failures.forget(failing)
        if self._traces.under_way:
            for said, answer in zip(batch, answers, strict=True):
                self._traces.settled(said.task, said.outcome, answer)
        self._keeper.drop([settlement.task for settlement in batch])

    def _track(
        self, coroutine: Coroutine[Any, Any, Result], context: contextvars.Context | None = None
    ) -> asyncio.Task[Result]:
        """Have something run that must come to its end before the worker leaves."""
        life = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return life

    def _heard(self, task_id: TaskId, pulse: Pulse) -> None:
        """The keeper has news of a lease."""
        if pulse is Pulse.OVERDUE:
            log.warning(
                "task %s: the event loop was blocked past the timeout; the lease keeper recorded the timeout", task_id
            )
        attempt = self._attempts.get(task_id)
        if attempt is None or pulse is Pulse.HELD:
            return
        if pulse is Pulse.LOST:
            log.warning("task %s: lease lost; stopping its attempt", task_id)
        attempt.stop(Stop.CANCEL if pulse is Pulse.CANCEL else Stop.LEASE_LOST)

    def _progressed(self, task: Task, progress: Progress) -> None:
        """A handler reports progress, from whatever thread it runs in."""
        if task.status.lease is not None:
            self._reports[task.id] = Beat(task.id, task.status.lease.token, progress, self._keeper.allowance(task.id))

    async def _keep_time(self) -> None:
        """Stop attempts whose time is up. One look at all of them is cheaper than a timer for each."""
        while True:
            if not self._attempts:
                self._busy.clear()
                self._watch.rest()
                hear_again()
            await self._busy.wait()
            self._watch.turn()
            await asyncio.sleep(_TIME_INTERVAL)
            self._watch.turn()
            hear_again()
            now = time.monotonic()
            for attempt in list(self._attempts.values()):
                if attempt.deadline <= now:
                    attempt.stop(Stop.TIMEOUT)
                if attempt.heeds_nothing(now):
                    self._leave_behind(attempt)

    def _named(self, running: asyncio.Task[Any] | None) -> str:
        """What runs in a task of the loop, for a warning."""
        attempt = next((each for each in list(self._attempts.values()) if each.life is running), None)
        return "something" if attempt is None else f"task {attempt.task.id} ({attempt.task.spec.type})"

    async def _keep_reporting(self) -> None:
        while True:
            await self._busy.wait()
            await asyncio.sleep(_REPORT_INTERVAL)
            beats = list(self._reports.values())
            if beats:
                # Progress is a courtesy: the next report says more, and a lost lease is the keeper's to tell.
                self._reports = {}
                with contextlib.suppress(StoreError):
                    await self._source.report(beats)

    async def _keep_warning(self) -> None:
        """Say, once for each, which types of task wait here in vain, that this worker does not run."""
        said: set[str] = set()
        while True:
            with contextlib.suppress(StoreError):
                for task_type, depth in (await self._source.unserved()).items():
                    if task_type not in said:
                        said.add(task_type)
                        log.warning(
                            "%d tasks of type %r wait in the queues of this worker, and no live worker can run them; "
                            "start one that has a handler and all capabilities",
                            depth,
                            task_type,
                        )
            await asyncio.sleep(_UNSERVED_INTERVAL)

    async def _drain(self) -> None:
        """Let running tasks end, and the claim under way; then hand back those that did not, and what that brings."""
        if self._lives:
            if self._attempts:
                log.info("draining: %d tasks still running, up to %g s", len(self._attempts), self._settings.drain)
            ended, now = asyncio.create_task(self.idle()), asyncio.create_task(self._leaving_now.wait())
            await asyncio.wait([ended, now], timeout=self._settings.drain, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            now.cancel()
        for attempt in list(self._attempts.values()):
            attempt.stop(Stop.HAND_BACK)
        if self._lives:
            log.info("draining: time is up, stopping %d tasks", len(self._attempts))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended(), PATIENCE)
            for attempt in list(self._attempts.values()):
                self._leave_behind(attempt)
            # Not just those that live now: each has an outcome, and a settle of that comes after it. So it is with a
            # claim, whose tasks are handed back.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle(), _LAST_WORDS)

    def _left(self) -> str:
        """What was left undone, for the store did not answer."""
        left = []
        if self._outcomes:
            left.append(f"{len(self._outcomes)} tasks were neither settled nor handed back when the worker left")
        if self._unanswered:
            left.append("tasks may have been granted to the worker by its last claim")
        return f"the store did not answer: {' and '.join(left)}" if left else ""

    async def _ended(self) -> None:
        """Return when no attempt is under way."""
        while lives := [attempt.life for attempt in self._attempts.values() if attempt.life is not None]:
            await asyncio.wait(lives)
