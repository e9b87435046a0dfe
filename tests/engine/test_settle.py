"""Settling attempts: the lease holder's word, and when it counts."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.errors import LeaseLost
from fairlead.core.events import CancelConfirmed, Completed, Crashed, Failed, HandedBack, Outcome, TimedOut
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.core.task import Reason, State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Happening
from tests.engine.building import BOOM, Bench


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Completed(b"1"), State.COMPLETED),
        (Failed(failure=BOOM), State.SCHEDULED),
        (Failed(failure=BOOM, after=0), State.QUEUED),
        (Failed(failure=BOOM, retriable=False), State.FAILED),
        (TimedOut(), State.SCHEDULED),
        (Crashed(BOOM), State.SCHEDULED),
        (HandedBack(), State.QUEUED),
        (CancelConfirmed(), State.CANCELLED),
    ],
    ids=repr,
)
async def test_a_settled_task_stands_as_answered(bench: Bench, outcome: Outcome, state: State) -> None:
    task = await bench.executing()
    settled = await bench.settle(task, outcome)

    assert settled.state is state
    assert await bench.engine.get(task.id) == settled


async def test_many_are_settled_at_once_each_by_itself(bench: Bench) -> None:
    for _ in range(3):
        await bench.submit()
    one, lost, other = await bench.claim(limit=3)
    await bench.settle(lost, HandedBack())

    answers = await bench.engine.settle([Settlement(task, Completed()) for task in (one, lost, other)])

    assert [getattr(answer, "state", None) for answer in answers] == [State.COMPLETED, None, State.COMPLETED]
    assert isinstance(answers[1], LeaseLost)


async def test_only_a_task_as_it_was_claimed_can_be_settled(bench: Bench) -> None:
    with pytest.raises(ValueError, match="only a task as it was claimed"):
        await bench.settle(await bench.submit(), Completed())


async def test_the_jitter_comes_from_the_luck_of_the_engine(bench: Bench) -> None:
    for _ in range(20):
        await bench.submit()
    answers = await bench.engine.settle(
        [Settlement(task, Failed(failure=BOOM)) for task in await bench.claim(limit=20)]
    )
    delays = {answer.status.ready_at - bench.clock.now() for answer in answers if isinstance(answer, Task)}

    assert len(delays) > 10
    assert min(delays) >= 0.9 * SECOND
    assert max(delays) <= 1.1 * SECOND


async def test_a_result_over_the_limit_fails_the_task_and_says_why() -> None:
    bench = Bench(Settings(payload_limit=10))
    settled = await bench.settle(await bench.executing(), Completed(b"12345678901"))

    assert settled.state is State.FAILED
    assert settled.status.result is None
    assert settled.status.failure is not None
    assert settled.status.failure.type == "PayloadTooLarge"
    assert "result is 11 bytes, over the limit of 10" in settled.status.failure.message


async def test_a_result_at_the_limit_is_kept() -> None:
    bench = Bench(Settings(payload_limit=10))

    assert (await bench.settle(await bench.executing(), Completed(b"1234567890"))).status.result == b"1234567890"


class TestAfterCancelWasAsked:
    async def test_success_still_wins(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.engine.cancel(task.id)

        assert (await bench.settle(task, Completed(b"1"))).state is State.COMPLETED

    @pytest.mark.parametrize(
        "outcome",
        [Failed(failure=BOOM), TimedOut(), Crashed(BOOM), HandedBack(), CancelConfirmed()],
        ids=lambda said: said.name,
    )
    async def test_any_other_end_is_cancelled(self, bench: Bench, outcome: Outcome) -> None:
        task = await bench.executing()
        await bench.engine.cancel(task.id)
        settled = await bench.settle(task, outcome)

        assert settled.state is State.CANCELLED
        assert await bench.engine.get(task.id) == settled

    async def test_asking_many_times_does_not_lose_the_holders_word(self, bench: Bench) -> None:
        task = await bench.executing()
        for _ in range(5):
            await bench.engine.cancel(task.id)

        assert (await bench.settle(task, Completed())).state is State.COMPLETED


class TestSaidAgain:
    @pytest.mark.parametrize(
        "outcome",
        [Completed(b"1"), Failed(failure=BOOM), TimedOut(), Crashed(BOOM), HandedBack(), CancelConfirmed()],
        ids=repr,
    )
    async def test_the_same_is_acknowledged_and_changes_nothing(self, bench: Bench, outcome: Outcome) -> None:
        task = await bench.executing()
        await bench.settle(task, outcome)
        stored = await bench.engine.get(task.id)
        bench.clock.advance(5 * SECOND)
        await bench.settle(task, outcome)

        assert await bench.engine.get(task.id) == stored

    async def test_the_same_is_acknowledged_though_someone_else_holds_the_task_now(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, HandedBack())
        await bench.claim(worker="worker-2")

        assert isinstance(await bench.settle(task, HandedBack()), Task)

    async def test_something_else_is_refused(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Failed(failure=BOOM))
        (answer,) = await bench.engine.settle([Settlement(task, Completed())])

        assert isinstance(answer, LeaseLost)
        assert (await bench.engine.get(task.id)).state is State.SCHEDULED

    async def test_two_words_in_one_call_count_once(self, bench: Bench) -> None:
        task = await bench.executing()
        first, second = await bench.engine.settle(
            [Settlement(task, Completed(b"1")), Settlement(task, Completed(b"2"))]
        )

        assert isinstance(first, Task)
        assert isinstance(second, LeaseLost)
        assert (await bench.engine.get(task.id)).status.result == b"1"

    @pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(failure=BOOM)], ids=["complete", "fail"])
    async def test_the_answer_is_how_the_task_stands(self, bench: Bench, outcome: Outcome) -> None:
        task = await bench.executing()
        await bench.settle(task, outcome)
        bench.clock.advance(5 * SECOND)

        assert await bench.settle(task, outcome) == await bench.engine.get(task.id)

    async def test_the_answer_is_true_after_a_cancel_too(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.engine.cancel(task.id)
        await bench.settle(task, Failed(failure=BOOM))

        assert (await bench.settle(task, Failed(failure=BOOM))).state is State.CANCELLED


class TestALostLease:
    async def lost(self, bench: Bench, **wish: Any) -> Task:
        task = await bench.executing(**wish)
        bench.clock.advance(30 * SECOND)
        await bench.engine.sweep()
        return task

    async def test_its_holder_is_refused(self, bench: Bench) -> None:
        task = await self.lost(bench)
        (answer,) = await bench.engine.settle([Settlement(task, Completed())])

        assert isinstance(answer, LeaseLost)
        assert (await bench.engine.get(task.id)).status.reason is Reason.WORKER_LOST

    async def test_its_holder_is_refused_when_the_task_is_held_by_another_or_by_itself_anew(self, bench: Bench) -> None:
        task = await self.lost(bench)
        bench.clock.advance(2 * SECOND)
        await bench.engine.sweep()
        (again,) = await bench.claim(worker="worker-1")
        (answer,) = await bench.engine.settle([Settlement(task, Completed())])

        assert isinstance(answer, LeaseLost)
        assert await bench.engine.get(task.id) == again

    async def test_its_holder_is_refused_when_the_task_is_gone(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Completed())
        await bench.engine.discard(task.id)
        (answer,) = await bench.engine.settle([Settlement(task, Completed())])

        assert isinstance(answer, LeaseLost)

    async def test_a_lease_that_has_ended_but_was_not_swept_still_counts(self, bench: Bench) -> None:
        # Acceptance never compares clocks: until someone decided otherwise, the holder holds.
        task = await bench.executing()
        bench.clock.advance(300 * SECOND)

        assert (await bench.settle(task, Completed())).state is State.COMPLETED

    async def test_the_refusal_is_told(self, bench: Bench) -> None:
        task = await self.lost(bench)
        await bench.engine.settle([Settlement(task, Completed())])

        assert bench.told()[-1] is Happening.REFUSED
