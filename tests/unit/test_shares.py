"""Queues that share a worker: whose tasks come first, and how much each gets in the long run."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.queues.order import Promote, QueueTurns, serve, share_of
from fairlead.core.queues.shares import Passes, SharedAmong, WorkerShares, moved, shares_of
from fairlead.core.task import Priority, Task
from fairlead.testing.builders import NOW, a_task


def served(waiting: list[Task], shares: WorkerShares, claims: int, limit: int = 1) -> list[Task]:
    """What claims take, one after the other."""
    queues, passes, taken = list(shares.weights), Passes(), []
    for _ in range(claims):
        turns = {
            queue: QueueTurns(
                moved(Promote().tables(1, lambda: 0.0), at, len(queues), shares.among), share_of(Promote()), 3
            )
            for at, queue in enumerate(passes.order(queues, shares))
        }
        found = serve(waiting, turns, NOW, limit)
        waiting = [task for task in waiting if task not in found]
        passes.served(queues, shares, Counter(task.spec.queue for task in found))
        taken += found
    return taken


def test_queues_share_by_weight_whatever_their_backlogs() -> None:
    waiting = [a_task(queue="bulk", ready_at=NOW - 1_000 - at) for at in range(100)]
    waiting += [a_task(queue="web") for _ in range(100)]
    taken = served(waiting, WorkerShares({"web": 3, "bulk": 1}), 80)
    assert Counter(task.spec.queue for task in taken) == {"web": 60, "bulk": 20}


def test_over_claims_of_many_too() -> None:
    waiting = [a_task(queue=queue) for queue in ("web", "bulk") for _ in range(400)]
    taken = served(waiting, WorkerShares({"web": 3, "bulk": 1}), 32, limit=10)
    assert abs(Counter(task.spec.queue for task in taken)["web"] - 240) <= 10


def test_a_more_urgent_task_goes_first_whatever_its_queue_has_had() -> None:
    waiting = [a_task(queue="web") for _ in range(5)] + [
        a_task(queue="bulk", priority=Priority.CRITICAL) for _ in "123"
    ]
    taken = served(waiting, WorkerShares({"web": 100, "bulk": 0.01}), 8)
    assert [task.spec.queue for task in taken] == ["bulk"] * 3 + ["web"] * 5


def test_before_priority_each_queue_has_its_share_of_all() -> None:
    waiting = [a_task(queue="web", priority=Priority.LOW) for _ in range(9)]
    waiting += [a_task(queue="bulk", priority=Priority.CRITICAL) for _ in range(9)]
    taken = served(waiting, WorkerShares({"web": 1, "bulk": 1}, SharedAmong.ALL), 10)
    assert Counter(task.spec.queue for task in taken) == {"web": 5, "bulk": 5}


def test_in_strict_order_a_later_queue_has_what_is_left() -> None:
    waiting = [a_task(queue="bulk", priority=Priority.CRITICAL) for _ in "12"] + [a_task(queue="web") for _ in "123"]
    taken = served(waiting, WorkerShares({"web": 1, "bulk": 1}, SharedAmong.STRICT), 5)
    assert [task.spec.queue for task in taken] == ["web"] * 3 + ["bulk"] * 2


def test_who_had_nothing_to_do_saves_nothing() -> None:
    passes, shares = Passes(), WorkerShares({"web": 1, "bulk": 1})
    for _ in range(1_000):
        passes.served(["web", "bulk"], shares, {"web": 1})
    turns = []
    for _ in range(10):
        first = passes.order(["web", "bulk"], shares)[0]
        passes.served(["web", "bulk"], shares, {first: 1})
        turns.append(first)
    assert turns.count("bulk") <= 6


def test_within_a_queue_the_order_stays() -> None:
    waiting = [a_task(queue="web", priority=Priority(at % 4), ready_at=NOW - at * 10**9) for at in range(40)]
    alone = serve(waiting, {"web": QueueTurns(Promote().tables(1, lambda: 0.0), share_of(Promote()), 3)}, NOW, 40)
    for among in SharedAmong:
        shares = WorkerShares({"web": 1, "bulk": 1}, among)
        assert served(waiting, shares, 1, limit=40) == alone


def test_names_and_weights_are_read_as_people_write_them() -> None:
    assert shares_of(["web", "bulk"], None) == (["web", "bulk"], None)
    assert shares_of(["web=3", "bulk"], None) == (["web", "bulk"], WorkerShares({"web": 3, "bulk": 1}))
    assert shares_of(["web"], "all") == (["web"], None)
    assert shares_of(["web", "bulk"], "strict")[1] == WorkerShares({"web": 1, "bulk": 1}, SharedAmong.STRICT)


@pytest.mark.parametrize("wrong", ["web=", "web=0", "web=x", "web=1e9", "web=nan"])
def test_what_is_no_weight_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match=r"weight of queue web .* is not a weight"):
        shares_of([wrong, "bulk"], None)


@pytest.mark.parametrize("wrong", [None, 5, b"web", True])
def test_what_is_no_text_names_no_queue(wrong: object) -> None:
    with pytest.raises(InvalidTask, match=r"queues .* is not a str; write a name"):
        shares_of(["web", wrong], None)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="share 'some' is unknown; use rank, all or strict"):
        shares_of(["web", "bulk"], "some")
    with pytest.raises(InvalidSettings, match="has a weight, which says nothing in strict order"):
        shares_of(["web=3", "bulk"], "strict")
    with pytest.raises(InvalidSettings, match="queue 'web' has two weights, 3 and 1; leave one out"):
        shares_of(["web=3", "web"], None)
