"""A survey: what runs longest and what failed last, out of many."""

from __future__ import annotations

from fairlead.admin.engine import AdminEngine
from fairlead.cli.commands.top import SHOWN, survey
from fairlead.core.events import Completed, Failed, Outcome
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore

NODE = WorkerId("node-1")
BOOM = Failed(failure=Failure(type="Boom"), retriable=False)


class Place:
    """An engine whose tasks are claimed a second apart."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = AdminEngine(MemoryStore(), clock=self.clock)

    async def run(self, count: int) -> list[Task]:
        """Submit so many tasks, and claim them, the last one first."""
        for number in range(count):
            await self.engine.submit(Submission(type=f"type-{number}", parameters=b"{}"))
        tasks: list[Task] = []
        for number in reversed(range(count)):
            self.clock.advance(SECOND)
            tasks += await self.engine.claim(NODE, ["default"], limit=1, types=[f"type-{number}"])
        return tasks

    async def end(self, task: Task, outcome: Outcome) -> None:
        self.clock.advance(SECOND)
        await self.engine.settle([Settlement(task, outcome)])


async def test_what_was_claimed_first_has_run_longest_whenever_it_was_submitted() -> None:
    place = Place()
    tasks = await place.run(SHOWN + 5)
    seen = await survey(place.engine)
    assert [task.id for task in seen.running] == [task.id for task in tasks[:SHOWN]]
    assert seen.failed == () and seen.at == place.clock.now()
    await place.engine.close()


async def test_the_newest_errors_are_those_that_ended_last() -> None:
    place = Place()
    tasks = await place.run(SHOWN + 5)
    for task in tasks[1:]:
        await place.end(task, BOOM)
    await place.end(tasks[0], Completed())
    seen = await survey(place.engine)
    assert [task.id for task in seen.failed] == [task.id for task in reversed(tasks[-SHOWN:])]
    assert seen.running == ()
    await place.engine.close()


async def test_who_works_here_is_there() -> None:
    place = Place()
    await place.engine.worker_records.register(NODE, queues=["default"], capacity=3)
    assert [worker.id for worker in (await survey(place.engine)).workers] == [NODE]
    await place.engine.close()
