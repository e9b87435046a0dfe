"""The worker: claims tasks for its free slots, runs them, settles them, and leaves without losing any."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from fairlead.core.errors import InvalidSettings, LeaseLost, StoreError
from fairlead.core.events import HandedBack
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND
from fairlead.core.task import Progress, Task
from fairlead.engine.engine import Settlement
from fairlead.storage.values import Beat, Pulse
from fairlead.worker.attempt import Attempt, Stop
from fairlead.worker.attendance import Attendance
from fairlead.worker.handlers import Handlers
from fairlead.worker.isolation import Cells
from fairlead.worker.keeper import Keeper
from fairlead.worker.outage import Outage
from fairlead.worker.source import Source
from fairlead.worker.threads import Threads
from fairlead.worker.tracing import Traces

if TYPE_CHECKING:
    from fairlead.engine.metrics import Metrics

log = logging.getLogger("fairlead.worker")

POLL_INTERVAL: Final = 1.0
"""How long an idle worker sleeps, in seconds, if nothing wakes it: signals are hints, this is the truth."""

_TIME_INTERVAL: Final = 0.1
_REPORT_INTERVAL: Final = 0.5
_UNSERVED_INTERVAL: Final = 60.0
_UNKNOWN_TYPE_DELAY: Final = 10 * SECOND
_LAST_WORDS: Final = 5.0
_BATCH: Final = 500


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker behaves."""

    concurrency: int = 100
    """How many tasks run at once."""
    drain_seconds: float = 30.0
    """How long running tasks may go on once the worker is asked to leave."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidSettings(f"concurrency {self.concurrency} runs nothing; use 1 or more")
        if self.drain_seconds < 0:
            raise InvalidSettings(f"drain_seconds {self.drain_seconds} has passed already; use 0 or more")


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
        self._cells = Cells()
        self._free = self._settings.concurrency
        self._freed = asyncio.Event()
        self._busy = asyncio.Event()
        """Cleared when nothing runs: then no attempt's time is up, and none has anything to report."""
        self._attempts: dict[TaskId, Attempt] = {}
        self._lives: set[asyncio.Task[None]] = set()
        self._claiming: asyncio.Task[int] | None = None
        self._reports: dict[TaskId, Beat] = {}
        self._outcomes: list[Settlement] = []
        self._settling = False
        self._traces = Traces()
        self._leaving = asyncio.Event()
        self._leaving_now = asyncio.Event()
        self._beat_failed: Callable[[int], None] = lambda count: None
        if metrics is not None:
            self._beat_failed = metrics.beat_failed
            metrics.employ(lambda: 1 - self._free / self._settings.concurrency)

    def leave(self) -> None:
        """Claim no more and let running tasks end; asked a second time, hand them back at once."""
        if self._leaving.is_set():
            self._leaving_now.set()
        self._leaving.set()

    async def run(self) -> None:
        """Work until asked to leave, then drain."""
        await self._keeper.start(self._heard, self._beat_failed)
        capacity = self._settings.concurrency
        attendance = Attendance(self._source, capacity, lambda: len(self._attempts), self._beat_failed)
        present = asyncio.create_task(attendance.keep(self._leaving, self.leave))
        duties = [
            asyncio.create_task(duty)
            for duty in (
                self._leaving.wait(),
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
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)
            await self._drain()
            present.cancel()
            await asyncio.gather(present, return_exceptions=True)
            await attendance.end()
            await self._keeper.close()
            await self.close()

    async def close(self) -> None:
        """End the processes and threads that run nothing any more; `run` does so when it leaves."""
        await self._cells.close()
        self._threads.close()

    async def once(self) -> int:
        """Claim for the free slots and start what was claimed; how many."""
        tasks = await self._source.claim(min(self._free, _BATCH))
        if tasks:
            self._begin(tasks)
        return len(tasks)

    async def idle(self) -> None:
        """Return when nothing runs and everything is settled."""
        while self._lives:
            await asyncio.wait(self._lives)

    async def _keep_claiming(self) -> None:
        outage = Outage("claim tasks")
        idle = False
        while not self._leaving.is_set():
            if self._free == 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            await self._keeper.ready()
            try:
                if idle:
                    tasks = await self._source.wait(min(self._free, _BATCH), POLL_INTERVAL)
                    idle = tasks is not None and not tasks
                    if tasks:
                        self._begin(tasks)
                        # They have waited for nothing but us: they take their first steps, then we look for more.
                        await asyncio.sleep(0)
                else:
                    # A claim under way when the worker leaves may have taken tasks: it is awaited, never cancelled.
                    self._claiming = asyncio.create_task(self.once())
                    idle = not await asyncio.shield(self._claiming)
            except StoreError as error:
                idle = False
                await outage.wait(error)
            else:
                outage.end()

    def _begin(self, tasks: list[Task]) -> None:
        """Hold tasks that were claimed, and start them."""
        self._busy.set()
        self._keeper.hold(tasks)
        for task in tasks:
            self._start(task)

    def _start(self, task: Task) -> None:
        handler = self._handlers.get(task.spec.type)
        if handler is None:
            # Claims name the types that are known, so this is a source that does not heed them.
            log.warning("task %s is of the unknown type %r; it is handed back", task.id, task.spec.type)
            self._say(Settlement(task, HandedBack(_UNKNOWN_TYPE_DELAY)))
            return
        self._free -= 1
        task_id = task.spec.id
        if task_id in self._attempts:
            # Given to this worker a second time, it is no longer what the first attempt holds.
            self._heard(task_id, Pulse.LOST)
        attempt = Attempt(task, handler, self._threads, self._cells, self._progressed, self._slot_is_free)
        self._attempts[task_id] = attempt
        if self._leaving.is_set():
            attempt.stop(Stop.HAND_BACK)
        attempt.life = self._track(self._live(attempt))

    async def _live(self, attempt: Attempt) -> None:
        """One attempt, until there is something to say of it."""
        task = attempt.task
        self._traces.begin(task)
        outcome = await attempt.run()
        if self._traces.under_way:
            self._traces.end(task, outcome)
        task_id = task.spec.id
        if self._attempts.get(task_id) is attempt:
            del self._attempts[task_id]
            self._reports.pop(task_id, None)
        if outcome is None:
            self._keeper.drop([task])
        else:
            self._say(Settlement(task, outcome))

    def _say(self, settlement: Settlement) -> None:
        """Have an outcome settled, along with whatever else has ended by then."""
        self._outcomes.append(settlement)
        if not self._settling:
            self._settling = True
            self._track(self._settle())

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
        try:
            answers = await self._source.settle(batch)
        except StoreError:
            raise
        except Exception:
            if len(batch) == 1:
                # Not an outage but an outcome that cannot be stored: its lease will end, and the task be tried again.
                log.exception("task %s: its outcome cannot be settled", batch[0].task.id)
                self._keeper.drop([batch[0].task])
                self._traces.settled(batch[0].task, None, None)
            else:
                for settlement in batch:
                    await self._settle_batch([settlement])
            return
        for answer in answers:
            if isinstance(answer, LeaseLost):
                log.warning("task %s: its lease was lost before it was settled; its outcome is dropped", answer.task_id)
        if self._traces.under_way:
            for said, answer in zip(batch, answers, strict=True):
                self._traces.settled(said.task, said.outcome, answer)
        self._keeper.drop([settlement.task for settlement in batch])

    def _track(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something run that must come to its end before the worker leaves."""
        life = asyncio.get_running_loop().create_task(coroutine)
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return life

    def _slot_is_free(self) -> None:
        self._free += 1
        if self._free == 1:
            # Only then may someone wait for it.
            self._freed.set()

    def _heard(self, task_id: TaskId, pulse: Pulse) -> None:
        """The keeper has news of a lease."""
        attempt = self._attempts.get(task_id)
        if attempt is None or pulse is Pulse.HELD:
            return
        if pulse is Pulse.LOST:
            log.warning("task %s: its lease is lost, so its attempt is stopped", task_id)
        attempt.stop(Stop.LEASE_LOST if pulse is Pulse.LOST else Stop.CANCEL)

    def _progressed(self, task: Task, progress: Progress) -> None:
        """A handler reports progress, from whatever thread it runs in."""
        if task.status.lease is not None:
            self._reports[task.id] = Beat(task.id, task.status.lease.token, progress)

    async def _keep_time(self) -> None:
        """Stop attempts whose time is up. One look at all of them is cheaper than a timer for each."""
        while True:
            if not self._attempts:
                self._busy.clear()
            await self._busy.wait()
            await asyncio.sleep(_TIME_INTERVAL)
            now = time.monotonic()
            for attempt in list(self._attempts.values()):
                if attempt.deadline <= now:
                    attempt.stop(Stop.TIMEOUT)

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
        """Say, once for each, which types of task wait here in vain."""
        said: set[str] = set()
        while True:
            with contextlib.suppress(StoreError):
                for task_type, depth in (await self._source.unserved()).items():
                    if task_type not in said:
                        said.add(task_type)
                        log.warning(
                            "%d tasks of type %r wait in the queues of this worker, which has no handler for them; "
                            "they wait for a worker that has",
                            depth,
                            task_type,
                        )
            await asyncio.sleep(_UNSERVED_INTERVAL)

    async def _drain(self) -> None:
        """Let running tasks end, then hand back those that did not."""
        if self._claiming is not None:
            await asyncio.wait([self._claiming], timeout=_LAST_WORDS)
        if self._lives:
            log.info("leaving: %d running tasks may take %g s more", len(self._lives), self._settings.drain_seconds)
            ended, now = asyncio.create_task(self.idle()), asyncio.create_task(self._leaving_now.wait())
            await asyncio.wait([ended, now], timeout=self._settings.drain_seconds, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            now.cancel()
        for attempt in list(self._attempts.values()):
            attempt.stop(Stop.HAND_BACK)
        if self._lives:
            log.info("leaving: %d tasks are handed back", len(self._lives))
            # Not just those that live now: each has an outcome, and a settle of that comes after it.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle(), _LAST_WORDS)
