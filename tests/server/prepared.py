"""What requests by chance hardly ever come upon: an operation that runs, a dead letter, a lease, a damaged record."""

from __future__ import annotations

import itertools
from typing import Any, Final

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.circuit import CircuitSettings
from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Task
from fairlead.engine.engine import Settlement
from fairlead.server.routes.worker_results import seal

SCHEDULE: Final = "nightly"
TASK_TYPE: Final = "send_email"

_numbers: Final = itertools.count()


async def furnish(engine: AdminEngine) -> None:
    """Put there what many requests can be about."""
    await engine.schedules.add(Schedule(name=SCHEDULE, cron="@daily", submission=Submission(type=TASK_TYPE)))
    await engine.circuits.set(TASK_TYPE, CircuitSettings())


async def prepare(engine: AdminEngine, path: str, body: Any) -> dict[str, str]:
    """The parameters of a path that lead to what was just made for one request; none if it needs nothing.

    Of a body, what must go with them is changed.
    """
    match path.split("/")[1:]:
        case ["api", "v1", "operations", "{operation_id}", *rest]:
            await engine.submit(Submission(type=TASK_TYPE))
            operation = await engine.operations.start(
                NewOperation(action=Action.CANCEL, query=parse_query("state:queued"))
            )
            if rest != ["pause"]:
                # Else it may have come to its end by the time it is asked for.
                await engine.operations.pause(operation.id)
            return {"operation_id": operation.id}
        case ["api", "v1", "dlq", "{task_id}", *_]:
            task = await _claimed(engine, _worker())
            await engine.settle([Settlement(task, Failed(failure=Failure(type="Boom", message=""), retriable=False))])
            return {"task_id": task.id}
        case ["api", "v1", "quarantine", "{kind}", "{name}", *_]:
            name = f"damaged-{next(_numbers)}"
            await engine.store.put("schedule", name, b"\xff")
            await engine.schedules.all()
            return {"kind": "schedule", "name": name}
        case ["api", "v1", "task-types", "{task_type}", "circuit", *_]:
            return {"task_type": TASK_TYPE}
        case ["internal", "workers", "{worker_id}", "progress" | "start"]:
            # A worker belongs to the key that has registered it, which is the one that asks.
            (key,) = await Keyring(engine).keys()
            worker = _worker()
            await engine.worker_records.register(worker, queues=["prepared"], capacity=1, key=key.id)
            task = await _claimed(engine, worker)
            body.update(task_id=task.id, lease=seal(task))
            return {"worker_id": worker}
        case _:
            return {}


def _worker() -> WorkerId:
    """A worker that nobody has paused."""
    return WorkerId(f"prepared-{next(_numbers)}")


async def _claimed(engine: AdminEngine, worker: WorkerId) -> Task:
    """A task of a queue and a type that nobody has paused."""
    name = f"prepared-{next(_numbers)}"
    await engine.submit(Submission(type=name, queue=name, max_retries=0))
    (task,) = await engine.claim(worker, [name], limit=1)
    return task
