"""Searching by a query, on every store: the same tasks whether the store or the engine decides, in bounded steps."""

from __future__ import annotations

import itertools

import pytest

from fairlead.core.identity import TaskId
from fairlead.core.query.match import admits
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query
from fairlead.core.task import Failure, Priority, State
from fairlead.engine import search
from fairlead.engine.search import plan
from fairlead.storage.protocol import Store
from fairlead.storage.values import Filter
from fairlead.testing.builders import a_task
from tests.engine.building import Bench
from tests.engine.stocking import START, a_dead_letter, stock

QUERIES = [
    "",
    "state:dead_letter",
    "-state:dead_letter",
    "state:queued state:dead_letter",
    "queue:emails type:send_mail",
    "queue:emails queue:default",
    "type:send_*",
    "priority:high",
    "-priority:high,medium,low",
    "tag:eu",
    "-tag:eu",
    "error:user",
    "params.user_id:3,5",
    "created:>-1m",
    "created:<-1m",
    "created:>-1m created:<+1m",
    '"user 7"',
    "id:00*",
    "state:dead_letter params.user_id:>4 -tag:eu",
]


async def ids(bench: Bench, query: Query, **how: object) -> list[TaskId]:
    """All that a search finds, page by page."""
    found: list[TaskId] = []
    after: TaskId | None = None
    while True:
        page = await bench.engine.search(query, limit=3, after=after, **how)  # type: ignore[arg-type]
        found += [task.id for task in page.tasks]
        if page.cursor is None:
            return found
        after = page.cursor


async def test_a_search_finds_what_the_query_means_and_nothing_else(any_store: Store) -> None:
    bench = Bench(store=any_store)
    tasks = await stock(
        any_store,
        [
            *(a_dead_letter(n, queue="emails", tags=("eu",) if n % 2 else ()) for n in range(8)),
            a_task(type="send_push", priority=Priority.HIGH),
            a_task(type="other", state=State.COMPLETED),
            a_task(type="other", priority=Priority.CRITICAL),
        ],
    )
    for text in QUERIES:
        query = parse_query(text)
        expected = sorted(task.id for task in tasks if admits(query, task, bench.clock.now()))
        assert await ids(bench, query, newest_first=False) == expected, text
        assert await ids(bench, query) == expected[::-1], text


async def test_tasks_named_by_their_ids_are_found_without_looking_at_others(any_store: Store) -> None:
    bench = Bench(store=any_store)
    tasks = await stock(any_store, [a_dead_letter(n) for n in range(5)])
    named = [tasks[3].id, tasks[1].id]

    query = parse_query(f"id:{','.join(named)},0123 params.user_id:1,2,3")

    assert plan(query, START).ids == tuple(named)
    assert await ids(bench, query, newest_first=False) == sorted(named)
    assert await ids(bench, parse_query("id:0123")) == []


async def test_a_filter_and_a_query_both_count() -> None:
    bench = Bench()
    tasks = await stock(bench.store, [a_dead_letter(n, queue="a" if n % 2 else "b") for n in range(6)])

    within = Filter(queue="a", states=frozenset({State.DEAD_LETTER, State.FAILED}))
    assert await ids(bench, parse_query("params.user_id:>1"), within=within) == [tasks[5].id, tasks[3].id]
    assert await ids(bench, parse_query("queue:b"), within=within) == []
    assert await ids(bench, parse_query("state:queued"), within=within) == []


async def test_a_call_looks_at_a_bounded_number_of_tasks_and_its_cursor_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED", 200)
    bench = Bench()
    tasks = await stock(bench.store, [a_dead_letter(n) for n in range(1_000)])
    query = parse_query("params.user_id:1")

    first = await bench.engine.search(query, limit=10)

    assert first.tasks == []
    assert first.cursor is not None and tasks[500].id < first.cursor < tasks[900].id
    assert await ids(bench, query) == [tasks[1].id]


async def test_a_call_looks_for_a_bounded_time_and_its_cursor_goes_on() -> None:
    bench = Bench()
    tasks = await stock(bench.store, [a_dead_letter(n) for n in range(50)])
    searcher = search.Searcher(bench.store, batching=False)
    sought = plan(parse_query("params.user_id:>=0"), START)
    seconds = itertools.count()

    first = await searcher.page(
        sought, limit=40, newest_first=False, budget=search.SearchBudget(1_000, 10.0, lambda: next(seconds))
    )
    second = await searcher.page(
        sought, limit=40, newest_first=False, after=first.cursor, budget=search.SearchBudget(1_000, 0.0, lambda: 0.0)
    )

    assert [task.id for task in first.tasks] == [task.id for task in tasks[: len(first.tasks)]]
    assert 1 <= len(first.tasks) <= 10
    assert first.cursor == first.tasks[-1].id
    # However little time there is, every page gets one task further.
    assert [task.id for task in second.tasks] == [tasks[len(first.tasks)].id]


async def test_what_could_not_be_counted_in_time_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "COUNT_SECONDS", 0.0)
    bench = Bench()
    await stock(bench.store, [a_dead_letter(n) for n in range(5)])
    searcher = search.Searcher(bench.store, batching=False)

    assert await searcher.count(plan(parse_query("params.user_id:>=0"), START)) == search.TaskCount(1, exact=False)


@pytest.mark.parametrize(
    ("query", "matching"),
    [
        ("state:failed,dead_letter", Filter(states=frozenset({State.FAILED, State.DEAD_LETTER}))),
        ("-state:failed", Filter(states=frozenset(State) - {State.FAILED})),
        ("queue:a type:b priority:high tag:c", Filter(queue="a", type="b", priority=Priority.HIGH, tag="c")),
        ("created:>=-1s created:<+1s", Filter(created_from=START - 1_000_000, created_before=START + 1_000_000)),
        ("-priority:high,medium,low", Filter(priority=Priority.CRITICAL)),
    ],
)
def test_what_a_store_can_tell_is_left_to_it(query: str, matching: Filter) -> None:
    planned = plan(parse_query(query), START)

    assert planned.matching == matching
    assert planned.rest is None


async def test_the_same_error_with_different_ids_is_one_group(any_store: Store) -> None:
    bench = Bench(store=any_store)
    tasks = await stock(
        any_store,
        [
            *(a_dead_letter(n, ended_at=START - 100 + n) for n in range(5)),
            a_dead_letter(failure=Failure(type="TimeoutError", message="no answer within 30 s")),
            a_dead_letter(type="resize", queue="images"),
            a_task(state=State.FAILED),
        ],
    )

    grouped = await bench.engine.dead_letters.groups()

    assert (grouped.total, grouped.complete) == (7, True)
    assert [(each.type, each.count) for each in grouped.types] == [("send_mail", 6), ("resize", 1)]
    first = grouped.groups[0]
    assert (first.type, first.error, first.pattern, first.count) == ("send_mail", "KeyError", "user <n> is unknown", 5)
    assert (first.first_seen, first.last_seen) == (START - 100, START - 96)
    assert (first.example, first.message) == (tasks[4].id, "user 4 is unknown")
    assert len(grouped.groups) == 3
    of_group = await ids(bench, parse_query(f"fingerprint:{first.fingerprint} type:send_mail"), newest_first=False)
    assert of_group == [task.id for task in tasks[:5]]
    images = await bench.engine.dead_letters.groups(parse_query("queue:images"))
    assert [each.type for each in images.groups] == ["resize"]


async def test_a_type_with_too_many_dead_letters_is_reason_for_an_alert() -> None:
    from fairlead.core.settings import Settings

    bench = Bench(Settings(dead_letter_alert=3, dead_letter_alerts=(("resize", 1),)))
    await stock(bench.store, [*(a_dead_letter(n) for n in range(2)), a_dead_letter(type="resize")])

    grouped = await bench.engine.dead_letters.groups()

    assert {each.type: (each.alert_at, each.alert) for each in grouped.types} == {
        "send_mail": (3, False),
        "resize": (1, True),
    }
