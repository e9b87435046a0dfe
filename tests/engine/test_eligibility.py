"""Who could take a task, and what is told when nobody can."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.explain.explanation import CauseCode
from fairlead.core.identity import WorkerId
from fairlead.core.task import Lane, Priority
from fairlead.engine.explain.eligibility import able, obstacle
from fairlead.engine.worker_records import WorkerRecord, WorkerState

MAIL = Lane("default", "send_mail", (), Priority.MEDIUM)
RENDER = Lane("default", "render", ("eu", "gpu"), Priority.MEDIUM)
DEAD, DRAINING = WorkerState.DEAD, WorkerState.DRAINING


def a_worker(name: str = "w", **changes: Any) -> WorkerRecord:
    what: dict[str, Any] = {"queues": ("default",), "capacity": 4, "since": 0, "seen_at": 0}
    return WorkerRecord(id=WorkerId(name), name=name, **(what | changes))


@pytest.mark.parametrize(
    "worker",
    [
        a_worker(),
        a_worker(types=("other", "send_mail")),
        a_worker(queues=("other", "default"), capabilities=("gpu",)),
    ],
)
def test_a_worker_that_could_take_it_is_no_obstacle(worker: WorkerRecord) -> None:
    unable = a_worker("x", types=("other",))
    assert able([unable, worker], MAIL) == [worker]
    assert obstacle([unable, worker], MAIL) is None


@pytest.mark.parametrize(
    ("lane", "workers", "code", "said"),
    [
        (MAIL, [], CauseCode.NO_WORKERS, "no worker is running; start one"),
        (MAIL, [a_worker(state=DEAD)] * 2, CauseCode.NO_WORKERS, "no worker is running; 2 were lost within the last"),
        (
            MAIL,
            [a_worker(queues=("b", "c")), a_worker(state=DEAD)],
            CauseCode.QUEUE_UNSERVED,
            "no worker serves the queue default; those that run serve b, c",
        ),
        (
            MAIL,
            [a_worker(types=("render",)), a_worker(queues=("b",), types=("send_mail",))],
            CauseCode.TYPE_UNKNOWN,
            "no worker of queue default has a handler for the type send_mail; 1 worker serves it",
        ),
        (
            RENDER,
            [a_worker(capabilities=("eu",)), a_worker(), a_worker(types=("x",), capabilities=("eu", "gpu"))],
            CauseCode.CAPABILITY_MISSING,
            "no worker with a handler for render has all of eu, gpu; gpu is missing",
        ),
        (
            MAIL,
            [a_worker("a", state=DRAINING), a_worker("b", state=DRAINING), a_worker("c", types=("x",))],
            CauseCode.ALL_DRAINING,
            "every worker that could run it is draining and takes no more tasks: a, b",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, CauseCode) else "",
)
def test_what_is_missing_at_those_that_come_nearest_is_told(
    lane: Lane, workers: list[WorkerRecord], code: CauseCode, said: str
) -> None:
    cause = obstacle(workers, lane)
    assert cause is not None and cause.blocks
    assert cause.code == code
    assert cause.text.startswith(said)
    assert able(workers, lane) == []
