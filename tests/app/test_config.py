"""Where settings come from, and which source wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.app.config import load
from fairlead.app.config_keys import KEYS
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND
from fairlead.core.queues.order import HeadStart, Promote, Strict, Weighted
from fairlead.core.settings import CEILINGS_BY_PRIORITY, DelayCeilings, Settings
from tests.app.configuring import read

# The table


def test_the_defaults_of_the_table_are_those_of_the_engine(tmp_path: Path) -> None:
    assert Settings() == read(tmp_path).engine_settings()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("promote", Promote()), ("strict", Strict()), ("head_start", HeadStart()), ("weighted", Weighted())],
)
def test_every_policy_has_the_defaults_of_the_core(policy: str, expected: object, tmp_path: Path) -> None:
    assert expected == read(tmp_path, flags={"order_policy": policy}).engine_settings().order


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_key_has_a_default_that_it_would_accept_and_a_line_about_it(key: Any, tmp_path: Path) -> None:
    configuration = read(tmp_path, flags={key.name: key.default})

    assert key.default == getattr(configuration, key.name)
    assert key.doc
    assert key.remedy
    assert "\n" not in key.doc


def test_every_key_is_shown_with_its_origin(tmp_path: Path) -> None:
    configuration = read(tmp_path, "lease_seconds = 60", {"concurrency": 4}, FAIRLEAD_PROCESSES="2")

    shown = {entry.key: (entry.value, entry.origin) for entry in configuration.entries()}

    assert list(KEYS) == list(shown)
    assert (60.0, str(tmp_path / "fairlead.toml")) == shown["lease_seconds"]
    assert shown["concurrency"] == (4, "--concurrency")
    assert shown["processes"] == (2, "FAIRLEAD_PROCESSES")
    assert shown["queue_bound"] == (None, "default")


def test_the_ceilings_of_delays_are_a_preset_and_single_numbers_that_go_before_it(tmp_path: Path) -> None:
    preset = read(tmp_path, flags={"backoff-max-by-priority": "true"}).engine_settings().rules.delay_ceilings
    alone = read(tmp_path, FAIRLEAD_BACKOFF_MAX_HIGH_SECONDS="7")
    own = read(tmp_path, "[backoff]\nmax_by_priority = true\nmax_critical_seconds = 2.5\nmax_low_seconds = 90")

    assert preset == CEILINGS_BY_PRIORITY
    assert own.engine_settings().rules.delay_ceilings == replace(
        CEILINGS_BY_PRIORITY, critical=2_500_000, low=90 * SECOND
    )
    assert alone.engine_settings().rules.delay_ceilings == DelayCeilings(high=7 * SECOND)


def test_how_timeouts_grow_has_keys(tmp_path: Path) -> None:
    rules = (
        read(
            tmp_path,
            "[timeout]\ngrowth = 2\nceiling_seconds = 60",
            FAIRLEAD_TIMEOUT_GROWTH_AFTER_FAILURE="true",
        )
        .engine_settings()
        .rules
    )

    assert (rules.timeout_growth, rules.timeout_ceiling) == (2.0, 60 * SECOND)
    assert rules.timeout_growth_after_failure


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("backoff_max_critical_seconds", "-1"),
        ("backoff_max_low_seconds", "soon"),
        ("backoff_max_by_priority", "10,30,60"),
        ("timeout_growth", "0.5"),
        ("timeout_growth", "nan"),
        ("timeout_ceiling_seconds", "inf"),
    ],
)
def test_what_makes_no_sense_of_retries_is_refused_with_its_key(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=f"{key} cannot be .*; use "):
        read(tmp_path, flags={key: value})


# The sources


def test_flags_win_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = "concurrency = 1\nprocesses = 1\nmax_crashes = 1"

    configuration = read(
        tmp_path, file, {"concurrency": 3}, FAIRLEAD_CONCURRENCY="2", FAIRLEAD_PROCESSES="2", FAIRLEAD_LOG_LEVEL=""
    )

    assert (configuration.concurrency, configuration.processes, configuration.max_crashes) == (3, 2, 1)
    assert configuration.log_level == "info"


def test_the_file_may_use_tables_or_the_whole_name(tmp_path: Path) -> None:
    configuration = read(
        tmp_path,
        """
        retention_failed_seconds = 3
        [retention]
        completed_seconds = 1
        dead_letter_seconds = 2
        [defaults.low]
        max_retries = 7
        timeout_seconds = 1.5
        [order]
        policy = "weighted"
        weighted = { critical = 9 }
        [webhook]
        allow_http = true
        [email]
        from = "Fair Lead <lead@example.com>"
        """,
    )

    settings = configuration.engine_settings()
    assert (
        settings.rules.retention.completed // SECOND,
        settings.rules.retention.dead_letter // SECOND,
        settings.rules.retention.failed // SECOND,
    ) == (1, 2, 3)
    assert (settings.defaults.low.max_retries, settings.defaults.low.timeout) == (7, 1_500_000)
    assert Weighted(critical=9) == settings.order
    assert configuration.webhook_allow_http
    assert configuration.email_from == "Fair Lead <lead@example.com>"


def test_environment_variables_are_converted(tmp_path: Path) -> None:
    configuration = read(
        tmp_path,
        FAIRLEAD_QUEUES="mail, video,",
        FAIRLEAD_RETENTION_COMPLETED_SECONDS="0.5",
        FAIRLEAD_KEEPER="False",
        FAIRLEAD_QUEUE_BOUND=" 100 ",
    )

    assert configuration.queues == ("mail", "video")
    assert configuration.retention_completed_seconds == 0.5
    assert configuration.keeper is False
    assert configuration.queue_bound == 100


@pytest.mark.parametrize("none", ["none", "None"])
def test_none_unsets_what_a_weaker_source_sets(none: str, tmp_path: Path) -> None:
    assert read(tmp_path, "queue_bound = 5", FAIRLEAD_QUEUE_BOUND=none).queue_bound is None


@pytest.mark.parametrize("name", ["drain_seconds", "drain-seconds", "--drain-seconds", "drain.seconds"])
def test_a_flag_may_be_spelled_as_on_the_command_line(name: str, tmp_path: Path) -> None:
    assert read(tmp_path, flags={name: "5"}).drain_seconds == 5.0


@pytest.mark.parametrize("queues", [["a", "b"], ("a", "b"), "a,b"])
def test_a_list_may_be_given_as_such_or_with_commas(queues: object, tmp_path: Path) -> None:
    assert read(tmp_path, flags={"queues": queues}).queues == ("a", "b")


def test_queues_may_have_weights_by_which_they_share_a_worker(tmp_path: Path) -> None:
    assert read(tmp_path, flags={"queues": "web=3, bulk=0.5,rest"}).queues == ("web=3", "bulk=0.5", "rest")


def test_a_flag_of_none_was_not_given(tmp_path: Path) -> None:
    assert read(tmp_path, "concurrency = 7", {"concurrency": None}).concurrency == 7


def test_the_file_is_not_searched_for_in_the_folders_above(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "fairlead.toml").write_text("concurrency = 7")

    assert read(below).concurrency == KEYS["concurrency"].default


def test_another_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("concurrency = 7")
    (tmp_path / "b.toml").write_text("concurrency = 8")

    assert read(tmp_path, "concurrency = 6", FAIRLEAD_CONFIG="a.toml").concurrency == 7
    assert read(tmp_path, None, {"config": "b.toml"}, FAIRLEAD_CONFIG="a.toml").concurrency == 8
    assert read(tmp_path, FAIRLEAD_CONFIG=str(tmp_path / "b.toml")).concurrency == 8
    assert read(tmp_path, FAIRLEAD_CONFIG="").concurrency == 6


def test_the_processs_own_environment_and_folder_are_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fairlead.toml").write_text("processes = 3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_CONCURRENCY", "4")

    configuration = load()

    assert (configuration.concurrency, configuration.processes) == (4, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIRLEAD_PORT", "tcp://10.0.0.1:8080"),
        ("FAIRLEAD_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("FAIRLEAD_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("FAIRLEAD_SERVICE_HOST", "10.0.0.1"),
        ("FAIRLEAD_SERVICE_PORT_HTTP", "8080"),
        ("FAIRLEAD_REDIS_SERVICE_PORT", "6379"),
    ],
)
def test_what_kubernetes_sets_for_a_service_of_our_name_is_not_ours(name: str, value: str, tmp_path: Path) -> None:
    assert load({}, {name: value}, tmp_path) == read(tmp_path)


def test_a_port_of_our_own_is_told_from_a_service_link(tmp_path: Path) -> None:
    assert load({}, {"FAIRLEAD_PORT": "9000"}, tmp_path).port == 9000
    with pytest.raises(InvalidSettings, match="port cannot be 'nine'"):
        load({}, {"FAIRLEAD_PORT": "nine"}, tmp_path)


def test_the_key_to_a_server_is_never_shown() -> None:
    configuration = load(environ={"FAIRLEAD_API_KEY": "fl_abc_secret"}, folder=Path("/nonexistent"))

    assert configuration.api_key == "fl_abc_secret"
    assert {entry.key: entry.value for entry in configuration.entries()}["api_key"] == "***"
    assert "secret" not in repr(configuration)
    with pytest.raises(InvalidSettings) as refused:
        load(flags={"api_key": ["fl_abc_secret"]}, environ={}, folder=Path("/nonexistent"))
    assert "secret" not in str(refused.value)
