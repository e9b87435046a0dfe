"""Group commit: concurrent calls become one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlead.engine.runtime.event_loop import Batcher, PlacedBatcher


class Line:
    """What a batcher sends to: it holds each batch until it is let go, and answers with the items doubled."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._let_go: list[asyncio.Future[None]] = []

    async def send(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._let_go.append(held)
        await held
        return [2 * item for item in items]

    async def let_go(self, error: BaseException | None = None) -> None:
        """Let the batch under way end, and everyone take note."""
        await settle_down()
        held = self._let_go.pop(0)
        if error is None:
            held.set_result(None)
        else:
            held.set_exception(error)
        await settle_down()


def calling(batcher: Batcher[int, int] | PlacedBatcher[int, int], items: Sequence[int]) -> asyncio.Task[Sequence[int]]:
    """A caller that waits for its answers."""

    async def call() -> Sequence[int]:
        return await batcher.answers(items)

    return asyncio.create_task(call())


async def settle_down() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def line() -> Line:
    return Line()


async def test_the_next_batch_is_what_arrived_while_the_last_was_under_way(line: Line) -> None:
    batcher = Batcher(line.send)
    calls = [calling(batcher, [1])]
    await settle_down()
    calls += [calling(batcher, [n]) for n in (2, 3, 4)]
    await settle_down()
    assert line.batches == [[1]]
    await line.let_go()
    calls.append(calling(batcher, [5]))
    await line.let_go()
    await line.let_go()

    assert await asyncio.gather(*calls) == [[2], [4], [6], [8], [10]]
    assert line.batches == [[1], [2, 3, 4], [5]]


async def test_calls_made_in_one_breath_go_together(line: Line) -> None:
    batcher = Batcher(line.send)
    calls = [calling(batcher, [n]) for n in range(5)]
    await line.let_go()

    await asyncio.gather(*calls)
    assert line.batches == [[0, 1, 2, 3, 4]]


async def test_each_caller_gets_the_answers_to_its_own_items_in_order(line: Line) -> None:
    batcher = Batcher(line.send)
    calls = [calling(batcher, items) for items in ([1, 2], [3], [4, 5, 6])]
    await line.let_go()

    assert await asyncio.gather(*calls) == [[2, 4], [6], [8, 10, 12]]


async def test_nothing_to_send_is_not_sent(line: Line) -> None:
    assert await Batcher(line.send).answers([]) == []
    assert line.batches == []


async def test_an_error_reaches_every_caller_of_its_batch_and_no_other(line: Line) -> None:
    batcher = Batcher(line.send)
    unlucky = [calling(batcher, [n]) for n in (1, 2)]
    await settle_down()
    lucky = [calling(batcher, [n]) for n in (3, 4)]
    await line.let_go(ConnectionError("the store is away"))
    await line.let_go()

    assert [type(answer) for answer in await asyncio.gather(*unlucky, return_exceptions=True)] == [ConnectionError] * 2
    assert await asyncio.gather(*lucky) == [[6], [8]]


async def test_a_batcher_works_again_after_an_error(line: Line) -> None:
    batcher = Batcher(line.send)
    first = calling(batcher, [1])
    await line.let_go(ConnectionError())
    with pytest.raises(ConnectionError):
        await first
    second = calling(batcher, [2])
    await line.let_go()

    assert await second == [4]


@pytest.mark.parametrize("when", ["waiting", "under way"])
async def test_a_caller_that_is_cancelled_does_not_hurt_the_others(line: Line, when: str) -> None:
    batcher = Batcher(line.send)
    first = calling(batcher, [1])
    await settle_down()
    second, third = calling(batcher, [2]), calling(batcher, [3])
    await settle_down()
    if when == "under way":
        await line.let_go()
    second.cancel()
    await line.let_go()
    if when == "waiting":
        await line.let_go()

    assert await first == [2]
    assert await third == [6]
    assert second.cancelled()


async def test_a_caller_cancelled_before_an_error_leaves_no_unheard_error(line: Line) -> None:
    batcher = Batcher(line.send)
    gone, stays = calling(batcher, [1]), calling(batcher, [2])
    await settle_down()
    gone.cancel()
    await line.let_go(ConnectionError())

    with pytest.raises(ConnectionError):
        await stays


async def test_a_batch_holds_whole_calls_up_to_the_limit(line: Line) -> None:
    batcher = Batcher(line.send, limit=3)
    calls = [calling(batcher, items) for items in ([1], [2], [3, 4], [5])]
    await line.let_go()
    await line.let_go()

    await asyncio.gather(*calls)
    assert line.batches == [[1, 2], [3, 4, 5]]


async def test_a_call_larger_than_the_limit_goes_alone(line: Line) -> None:
    batcher = Batcher(line.send, limit=2)
    calls = [calling(batcher, items) for items in ([1, 2, 3], [4])]
    await line.let_go()
    await line.let_go()

    assert await asyncio.gather(*calls) == [[2, 4, 6], [8]]
    assert line.batches == [[1, 2, 3], [4]]


def test_a_limit_that_sends_nothing_is_refused(line: Line) -> None:
    with pytest.raises(ValueError, match="use 1 or more"):
        Batcher(line.send, limit=0)


def test_a_batcher_outlives_the_loop_it_was_used_in() -> None:
    async def double(items: Sequence[int]) -> list[int]:
        return [2 * item for item in items]

    batcher = Batcher(double)

    async def call(item: int) -> Sequence[int]:
        return await batcher.answers([item])

    assert [asyncio.run(call(1)), asyncio.run(call(2))] == [[2], [4]]


async def test_a_batch_that_is_itself_cancelled_leaves_nobody_waiting_for_ever(line: Line) -> None:
    batcher = Batcher(line.send)
    under_way = calling(batcher, [1])
    await settle_down()
    behind = calling(batcher, [2])
    await settle_down()
    await line.let_go(asyncio.CancelledError())
    await line.let_go()

    assert under_way.done()
    assert behind.done()


def by_ten(item: int) -> int:
    return item // 10


async def test_a_place_that_keeps_its_items_waiting_does_not_keep_the_others(line: Line) -> None:
    batcher = PlacedBatcher(line.send, by_ten)
    slow, quick = calling(batcher, [1]), calling(batcher, [11])
    await settle_down()
    line._let_go.reverse()
    await line.let_go()
    assert (slow.done(), await quick) == (False, [22])
    await line.let_go()
    assert await slow == [2]


async def test_answers_of_several_places_come_in_the_order_of_the_items(line: Line) -> None:
    caller = calling(PlacedBatcher(line.send, by_ten), [11, 1, 12, 2])
    await settle_down()
    assert line.batches == [[11, 12], [1, 2]]
    await line.let_go()
    await line.let_go()
    assert await caller == [22, 2, 24, 4]
    assert await PlacedBatcher(line.send, by_ten).answers([]) == []


async def test_an_error_in_one_place_is_told_when_the_others_have_ended(line: Line) -> None:
    caller = calling(PlacedBatcher(line.send, by_ten), [1, 11])
    await line.let_go(OSError("gone"))
    assert not caller.done()
    await line.let_go()
    with pytest.raises(OSError, match="gone"):
        await caller
