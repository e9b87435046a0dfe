"""The worked examples of the how-to page, as programs that end as the page says."""

from __future__ import annotations

from typing import Any, Final

from fairlead.local import TaskQueueManager, TaskReport
from tests.docs.reading import ROOT, Block, blocks, section

PAGE: Final = ROOT / "docs" / "how-to" / "use-the-in-process-queue.md"


def example(title: str) -> Block:
    """The block of Python under a heading of the page."""
    text = section(PAGE, title)
    (block,) = (block for block in blocks(PAGE) if block.language == "python" and block.body in text)
    return block


def after(title: str) -> dict[str, Any]:
    """What an example leaves in its module."""
    left: dict[str, Any] = {"__name__": "example"}
    block = example(title)
    exec(compile(block.body, str(block), "exec"), left)
    return left


def shown(manager: TaskQueueManager, task_id: str) -> TaskReport:
    task = manager.get_task_status(task_id)
    assert task is not None
    return task


def test_a_worker_loop_retries_by_itself_until_a_task_succeeds_or_has_had_its_attempts() -> None:
    left = after("A worker loop with automatic retry")
    manager = left["manager"]

    assert left["sent"] == ["ada"]
    greeting = shown(manager, left["greeting"]["task_id"])
    assert (greeting["status"], greeting["retry_count"], greeting["error_message"]) == ("completed", 2, None)
    hopeless = shown(manager, left["hopeless"]["task_id"])
    assert (hopeless["status"], hopeless["retry_count"]) == ("failed", 3)
    statistics = manager.get_statistics()
    assert (statistics["completed"], statistics["failed"], statistics["pending"]) == (1, 1, 0)


def test_a_worker_reads_the_retry_policy_and_waits_by_itself() -> None:
    left = after("A worker that reads the retry policy and waits by itself")

    assert left["waits"] == [0.001, 0.003, 0.005]
    assert left["manager"].get_statistics()["completed"] == 1


def test_statistics_are_read_maintenance_is_forced_and_stuck_tasks_are_recovered() -> None:
    left = after("Statistics, maintenance and stuck tasks")
    manager = left["manager"]

    assert left["recovered"]["task_ids"] == [left["hanging"]["task_id"]]
    recovered = shown(manager, left["hanging"]["task_id"])
    assert (recovered["status"], recovered["retry_count"], recovered["worker_id"]) == ("in_progress", 0, "worker-3")
    statistics = manager.get_statistics()
    assert statistics["total_tasks"] == 3
    assert statistics["last_cleanup"] is not None and statistics["last_heap_rebuild"] is not None
