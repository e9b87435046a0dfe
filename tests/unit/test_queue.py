"""The settings of one queue go before those of all, and nothing else changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import TaskId
from fairlead.core.instant import LONGEST, MINUTE, SECOND
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.queue import UNBOUNDED, QueueOptions, QueueSettings, changed, settings_in
from fairlead.core.retry import Backoff
from fairlead.core.settings import Settings, effective
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Priority, Task

SETTINGS = Settings(queue_bound=100, order=Promote(low=MINUTE))


def accepted(queue: QueueSettings, **wish: Any) -> Task:
    submission = Submission(type="work", **wish)
    return accept(submission, TaskId("0" * 32), 1_000_000, effective(SETTINGS, queue))


@pytest.mark.parametrize("queue", [QueueSettings(), QueueSettings(paused=True)])
def test_a_queue_without_settings_of_its_own_has_those_of_all(queue: QueueSettings) -> None:
    assert effective(SETTINGS, queue) == SETTINGS


def test_a_bound_of_its_own_goes_before_that_of_all() -> None:
    assert effective(SETTINGS, QueueSettings(bound=7)).queue_bound == 7
    assert effective(SETTINGS, QueueSettings(bound=UNBOUNDED)).queue_bound is None
    assert effective(Settings(), QueueSettings(bound=7)).queue_bound == 7


@pytest.mark.parametrize("order", [Strict(), Promote(), HeadStart(low=SECOND), Weighted(low=3)])
def test_an_order_of_its_own_goes_before_that_of_all(order: Policy) -> None:
    assert effective(SETTINGS, QueueSettings(order=order)).order == order


def test_defaults_of_its_own_are_for_tasks_that_do_not_say() -> None:
    backoff = Backoff(initial=7 * SECOND)
    queue = QueueSettings(priority=Priority.LOW, timeout=SECOND, max_retries=1, max_crashes=0, backoff=backoff)
    task = accepted(queue)
    assert task.status.priority is Priority.LOW
    assert (task.spec.timeout, task.spec.max_retries, task.spec.max_crashes) == (SECOND, 1, 0)
    assert task.spec.backoff == backoff


def test_what_a_task_says_goes_before_the_defaults_of_its_queue() -> None:
    queue = QueueSettings(priority=Priority.LOW, timeout=SECOND, max_retries=1, max_crashes=0, backoff=Backoff())
    said = Backoff(initial=9 * SECOND)
    task = accepted(queue, priority=Priority.HIGH, timeout=2 * SECOND, max_retries=4, max_crashes=5, backoff=said)
    assert task.status.priority is Priority.HIGH
    assert (task.spec.timeout, task.spec.max_retries, task.spec.max_crashes) == (2 * SECOND, 4, 5)
    assert task.spec.backoff == said


def test_a_default_priority_brings_the_defaults_of_that_priority() -> None:
    task = accepted(QueueSettings(priority=Priority.CRITICAL))
    assert task.spec.max_retries == SETTINGS.defaults.critical.max_retries
    assert task.spec.timeout == SETTINGS.defaults.critical.timeout


def test_a_task_that_names_no_priority_is_medium_unless_it_was_changed() -> None:
    assert accepted(QueueSettings()).status.priority is Priority.MEDIUM


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bound": -1}, "bound -1"),
        ({"timeout": 0}, "timeout of 0 s"),
        ({"timeout": LONGEST + 1}, "at most a year"),
        ({"max_retries": -1}, "max_retries -1"),
        ({"max_crashes": 10_001}, "max_crashes 10001"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said) as refusal:
        QueueSettings(**wrong)
    assert "; use " in str(refusal.value)


def test_settings_that_are_written_and_read_are_the_same() -> None:
    queue = QueueSettings(paused=True, bound=3, order=Weighted(), priority=Priority.HIGH, backoff=Backoff())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(queue), type=QueueSettings) == queue
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(QueueSettings())) == {}


def test_every_setting_can_be_said_and_nothing_else() -> None:
    assert QueueOptions.__annotations__.keys() == settings_in(QueueSettings).keys()
    assert settings_in(QueueSettings).keys() == set(QueueSettings.__struct_fields__) - {"paused"}


def test_what_is_said_is_kept_in_the_units_of_the_store() -> None:
    own = changed(QueueSettings(), {"timeout": 1.5, "priority": "low", "rate": "10/s", "type_rate": {"send": "1/m"}})
    assert (own.timeout, own.priority) == (1_500_000, Priority.LOW)
    assert (str(own.rate), str(own.type_rate["send"])) == ("10/s", "1/m")


def test_types_that_are_not_named_stay_as_they_are() -> None:
    own = changed(QueueSettings(type_running={"a": 1, "b": 2}), {"type_running": {"a": None, "c": 3}})
    assert own.type_running == {"b": 2, "c": 3}
    assert changed(own, {"type_running": None}).type_running == {}


def test_an_unknown_option_is_named_beside_those_there_are() -> None:
    with pytest.raises(InvalidSettings, match="option 'ratee' of a queue is unknown; the options are backoff, bound"):
        changed(QueueSettings(), {"ratee": "1/s"})  # type: ignore[typeddict-unknown-key]
