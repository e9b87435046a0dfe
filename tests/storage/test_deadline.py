"""A call has one deadline, over all that it does."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.core.errors import StoreMismatch, StoreUnavailable, WorkerNotFound
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage import deadline
from fairlead.storage.deadline import Budget, left, share, timed, timed_store


@timed_store
class Hanging:
    """A store of which each operation asks what is left, or waits for ever."""

    def __init__(self, seconds: float, *, blocking: bool = False, behind: Hanging | None = None) -> None:
        self.budget = Budget(seconds, "the harbour", blocking=blocking)
        self.behind = behind
        self.cleaned = False

    async def get(self, longest: float) -> float:
        return left(longest) if self.behind is None else await self.behind.get(longest)

    async def scan(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cleaned = True

    async def add(self) -> asyncio.Task[float]:
        return asyncio.create_task(_later())

    async def wait(self, longest: float) -> float:
        return left(longest)


async def _later() -> float:
    await asyncio.sleep(0)
    return left(100.0)


async def test_what_asks_nobody_is_cut_off() -> None:
    store = Hanging(0.01)
    with pytest.raises(StoreUnavailable, match=r"the harbour did not answer within 0\.01 s"):
        await store.scan()
    assert store.cleaned


async def test_whoever_waits_is_told_what_is_left() -> None:
    assert 3 < await Hanging(4.0).get(100.0) <= 4
    assert await Hanging(4.0).get(1.0) == 1.0


async def test_a_call_within_a_call_has_the_sooner_deadline() -> None:
    assert 3 < await Hanging(4.0, behind=Hanging(50.0)).get(100.0) <= 4
    assert 3 < await Hanging(50.0, behind=Hanging(4.0)).get(100.0) <= 4


def test_blocking_calls_have_it_too() -> None:
    assert 3 < run_inline(Hanging(4.0, blocking=True).get(100.0)) <= 4


async def test_waiting_for_work_has_none() -> None:
    assert await Hanging(4.0).wait(100.0) == 100.0


async def test_what_goes_on_after_a_call_has_none() -> None:
    assert await (await Hanging(4.0).add()) == 100.0


async def test_an_error_of_the_operation_is_not_taken_for_the_deadline() -> None:
    class Failing:
        budget = Budget(4.0, "the harbour", blocking=False)

        @timed
        async def get(self) -> None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await Failing().get()


def test_every_operation_that_a_store_has_is_known() -> None:
    """Of the contract, all but what waits or takes as long as it takes."""
    from fairlead.storage.protocol import Store

    named = {name for name in vars(Store) if not name.startswith("_")}
    assert named - set(deadline.OPERATIONS) == {"wait", "close"}


async def test_a_caller_who_leaves_is_not_told_of_a_deadline() -> None:
    store = Hanging(60.0)
    call = asyncio.create_task(store.scan())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert store.cleaned


async def test_whoever_was_cut_off_goes_on_as_if_nobody_had_asked_it_to_stop() -> None:
    class Stubborn:
        budget = Budget(0.01, "the harbour", blocking=False)

        @timed
        async def get(self) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise ValueError("the connection was closed") from None

    with pytest.raises(ValueError, match="the connection was closed"):
        await Stubborn().get()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_calls_that_hang_are_all_cut_off() -> None:
    stores = [Hanging(0.01), Hanging(0.02), Hanging(0.02, behind=Hanging(60.0))]
    outcomes = await asyncio.gather(*(store.scan() for store in stores for _ in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)


async def test_of_several_that_are_tried_none_takes_the_time_of_the_others() -> None:
    class Trying(Hanging):
        @timed
        async def get(self, longest: float) -> float:
            with share(4, 1000.0):
                assert 0 < left(1000.0) <= 1
            with share(1, 1.5):
                assert 1 < left(1000.0) <= 1.5
            return left(longest)

    assert 3 < await Trying(4.0).get(100.0) <= 4
    with share(2, 100.0):
        assert 40 < left(1000.0) <= 50
    with share(2, 0.02), pytest.raises(StoreUnavailable, match="the harbour did not answer"):
        await Hanging(60.0).scan()


@pytest.mark.parametrize("error", [KeyError("?"), IndexError("?"), TypeError("?"), ValueError("?"), OverflowError("?")])
async def test_what_a_store_cannot_make_sense_of_is_an_error_of_the_store(error: Exception) -> None:
    """What its caller gave it and cannot be stored is not."""

    class Damaged(Hanging):
        @timed
        async def tally(self) -> None:
            raise error

        @timed
        async def apply(self) -> None:
            raise error

        @timed
        async def usage(self) -> None:
            raise WorkerNotFound("one")

    with pytest.raises(StoreMismatch, match="the harbour is damaged beside its tasks and records"):
        await Damaged(60.0).tally()
    with pytest.raises(type(error)):
        await Damaged(60.0).apply()
    with pytest.raises(WorkerNotFound):
        await Damaged(60.0).usage()
