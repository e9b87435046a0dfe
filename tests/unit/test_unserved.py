"""Which ready tasks no live worker could run, and what they lack."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.explain.explanation import CauseCode
from fairlead.core.health.unserved import MOST_NAMED, SERVED, Ability, Fleet, Lack, LastSeen, unserved
from fairlead.core.instant import SECOND
from fairlead.core.task import Lane, Priority

NOW = 1_000 * SECOND


def lane(task_type: str = "mail", *requires: str, queue: str = "default", priority: Priority = Priority.LOW) -> Lane:
    return Lane(queue, task_type, requires, priority)


def a_worker(*types: str, queues: tuple[str, ...] = ("default",), has: tuple[str, ...] = ()) -> Ability:
    return Ability(queues, types or None, has)


names = st.sampled_from(["a", "b", "c"])
some = st.lists(names, unique=True, max_size=3).map(lambda each: tuple(sorted(each)))
abilities = st.builds(Ability, some, st.none() | some, some)


@given(st.lists(abilities, max_size=5), st.builds(Lane, names, names, some, st.just(Priority.LOW)))
def test_a_lane_lacks_something_exactly_if_no_single_worker_has_all(workers: list[Ability], asked: Lane) -> None:
    serving = [each for each in workers if asked.queue in each.queues]
    knowing = [each for each in serving if each.types is None or asked.type in each.types]
    fit = [each for each in knowing if set(asked.requires) <= set(each.capabilities)]
    lack = Fleet(workers).lack_of(asked)
    if fit:
        assert lack is None
    elif knowing:
        fewest = min(len(set(asked.requires) - set(each.capabilities)) for each in knowing)
        assert lack is not None and lack.code == CauseCode.CAPABILITY_MISSING and len(lack.missing) == fewest
        assert any(set(asked.requires) - set(each.capabilities) == set(lack.missing) for each in knowing)
    else:
        reason = CauseCode.TYPE_UNKNOWN if serving else CauseCode.QUEUE_UNSERVED
        assert lack == Lack(reason if workers else CauseCode.NO_WORKERS)


def test_what_lanes_of_one_kind_have_is_added_up_and_told_most_first() -> None:
    ready = [
        (lane("mail", priority=Priority.LOW), 3, NOW - 5 * SECOND),
        (lane("mail", priority=Priority.HIGH), 2, NOW - 9 * SECOND),
        (lane("render", "gpu"), 4, NOW),
        (lane("known"), 100, 0),
        (lane("mail", queue="other"), 1, NOW + SECOND),
    ]
    found = unserved(Fleet([a_worker("known", "render")]), ready, NOW)
    assert {queue: (each.tasks, each.kinds) for queue, each in found.items()} == {"default": (9, 2), "other": (1, 1)}
    mail, render = found["default"].first
    assert (mail.type, mail.tasks, mail.oldest_age, mail.lack.code) == ("mail", 5, 9 * SECOND, "type_unknown")
    assert (render.type, render.requires, render.lack.missing) == ("render", ("gpu",), ("gpu",))
    assert render.reason == "no worker of it with a handler for render has gpu"
    assert "--capabilities gpu" in render.remedy("default")
    (whole,) = found["other"].first
    assert (whole.type, whole.oldest_age, whole.reason) == (None, 0, "no worker serves it")


def test_a_flood_of_types_is_counted_and_few_are_named() -> None:
    flood = [(lane(f"type-{n}"), 1 + (n == 7_777), NOW) for n in range(10_000)]
    (found,) = unserved(Fleet([a_worker("known")]), flood, NOW).values()
    assert (found.tasks, found.kinds, len(found.first)) == (10_001, 10_000, MOST_NAMED)
    assert found.first[0].type == "type-7777"
    (whole,) = unserved(Fleet([]), flood, NOW).values()
    assert (whole.tasks, whole.kinds) == (10_001, 1)


def test_workers_that_can_do_the_same_are_one_answer() -> None:
    crowd = [a_worker("mail", has=("gpu",))] * 10_000
    fleet = Fleet([*crowd, a_worker("mail", has=("eu",))])
    assert fleet.lack_of(lane("mail", "eu", "gpu")) == Lack(CauseCode.CAPABILITY_MISSING, ("eu",))


def test_a_worker_of_another_tenant_does_not_serve_a_bound_queue() -> None:
    theirs = Ability(("default", "free"), None, (), "umbrella")
    fleet = Fleet([theirs], {"default": "acme"})
    assert fleet.lack_of(lane()) == Lack(CauseCode.QUEUE_UNSERVED)
    assert fleet.lack_of(lane(queue="free")) is None
    assert Fleet([theirs, a_worker()], {"default": "acme"}).lack_of(lane()) is None


def test_a_tenant_does_not_learn_whether_others_have_workers() -> None:
    told = [unserved(Fleet(workers), [(lane(), 1, NOW)], NOW)["default"] for workers in ([], [a_worker(queues=("x",))])]
    assert told[0] != told[1] and told[0].for_tenant() == told[1].for_tenant()
    assert SERVED.for_tenant() == SERVED


def test_what_was_here_lately_counts_for_a_grace_and_no_longer() -> None:
    last_seen = LastSeen()
    assert last_seen.with_those_of_late([a_worker("a")], 0, 30) == {a_worker("a")}
    assert last_seen.with_those_of_late([a_worker("b")], 29, 30) == {a_worker("a"), a_worker("b")}
    assert last_seen.with_those_of_late([], 30, 30) == {a_worker("b")}
    assert last_seen.with_those_of_late([], 59, 30) == set()
