"""The settings that rules and the engine read."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, HOUR, SECOND
from fairlead.core.queues.order import Promote
from fairlead.core.settings import Defaults, DelayCeilings, Retention, Rules, Settings
from fairlead.core.task import ENDED, Priority, State


def test_the_defaults_are_those_of_the_design() -> None:
    settings = Settings()

    assert [settings.defaults.of(priority).max_retries for priority in Priority] == [5, 5, 3, 2]
    assert [settings.defaults.of(priority).timeout // SECOND for priority in Priority] == [300, 300, 600, 900]
    assert settings.defaults.max_crashes == 3
    assert (settings.lease, settings.heartbeat) == (30 * SECOND, 10 * SECOND)
    assert settings.order == Promote()
    assert (settings.rules.timeout_growth, settings.rules.timeout_ceiling) == (1.5, HOUR)
    assert settings.rules.timeout_growth_after_failure is False
    assert settings.rules.delay_ceilings == DelayCeilings()
    assert settings.key_retention == DAY
    assert settings.queue_bound is None


@pytest.mark.parametrize(
    ("state", "days"),
    [(State.COMPLETED, 1), (State.CANCELLED, 1), (State.FAILED, 30), (State.DEAD_LETTER, 30)],
)
def test_each_end_has_its_retention(state: State, days: int) -> None:
    assert Retention().of(state) == days * DAY


@pytest.mark.parametrize("state", sorted(set(State) - ENDED))
def test_a_task_that_has_not_ended_has_none(state: State) -> None:
    with pytest.raises(ValueError, match=f"a {state} task has not ended"):
        Retention().of(state)


def test_every_priority_has_its_own_defaults() -> None:
    defaults = Defaults()

    assert [defaults.of(priority) for priority in Priority] == [
        defaults.critical,
        defaults.high,
        defaults.medium,
        defaults.low,
    ]


def test_a_lease_of_twice_the_heartbeat_is_just_long_enough() -> None:
    assert Settings(lease=20 * SECOND, heartbeat=10 * SECOND).lease == 20 * SECOND


@pytest.mark.parametrize(
    ("make", "wrong", "says"),
    [
        (DelayCeilings, {"critical": -1}, "delay ceiling of critical"),
        (DelayCeilings, {"low": "10"}, "delay ceiling of low"),
        (DelayCeilings, {"high": True}, "delay ceiling of high"),
        (DelayCeilings, {"medium": 2**70}, "delay ceiling of medium"),
        (Rules, {"delay_ceilings": 10}, "write DelayCeilings"),
        (Rules, {"delay_ceilings": None}, "write DelayCeilings"),
        (Rules, {"timeout_growth_after_failure": 1}, "timeout_growth_after_failure"),
    ],
    ids=repr,
)
def test_rules_that_make_no_sense_are_refused(make: Any, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        make(**wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lease": 20 * SECOND - 1, "heartbeat": 10 * SECOND}, "at least twice the heartbeat"),
        ({"queue_bound": 0}, "queue_bound 0"),
        ({"payload_limit": 1}, "payload_limit 1"),
        ({"lease": 0, "heartbeat": 0}, "lease"),
        ({"lease": 10, "heartbeat": -10}, "lease"),
        ({"sweep_interval": 0}, "sweep_interval"),
        ({"grace": -1}, "grace"),
        ({"key_retention": -1}, "key_retention"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        Settings(**wrong)
