"""What is said of a wrong setting, and what is never said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead import Fairlead, InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.storage.open import open_store
from tests.app.configuring import read, refusal


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [("concurency", "--concurrency"), ("lease", "--lease-seconds"), ("retention-completed", "--retention-completed-")],
)
def test_an_unknown_flag_names_the_nearest(flag: str, nearest: str, tmp_path: Path) -> None:
    assert f"unknown flag --{flag}; did you mean {nearest}" in refusal(tmp_path, flags={flag: 1})


def test_an_unknown_variable_names_the_nearest(tmp_path: Path) -> None:
    says = refusal(tmp_path, FAIRLEAD_CONCURENCY="3")

    assert "unknown environment variable FAIRLEAD_CONCURENCY; did you mean FAIRLEAD_CONCURRENCY?" in says


@pytest.mark.parametrize(
    ("file", "unknown", "nearest"),
    [
        ("concurency = 1", "concurency", "concurrency"),
        ("[retention]\ncomplete_seconds = 1", "retention.complete_seconds", "retention.completed_seconds"),
        ("[default.low]\nmax_retries = 1", "default.low.max_retries", "defaults_low_max_retries"),
        ("[retention]\nretention_failed_seconds = 1", "retention.retention_failed_seconds", "retention.failed_seconds"),
    ],
)
def test_an_unknown_key_of_the_file_names_the_nearest(file: str, unknown: str, nearest: str, tmp_path: Path) -> None:
    says = refusal(tmp_path, file)

    assert f"unknown key {unknown} in {tmp_path / 'fairlead.toml'}; did you mean {nearest}?" in says


def test_an_unknown_key_like_no_other_says_where_all_are_listed(tmp_path: Path) -> None:
    for says in (
        refusal(tmp_path, "zzz = 1"),
        refusal(tmp_path, "", {"zzz": 1}),
        refusal(tmp_path, "", FAIRLEAD_ZZZ="1"),
    ):
        assert says.startswith("unknown ")
        assert says.endswith("; `fairlead config` lists every key")
        assert "did you mean" not in says


def test_an_unknown_key_is_not_hidden_by_a_stronger_source(tmp_path: Path) -> None:
    assert "unknown key concurency" in refusal(tmp_path, "concurency = 1", {"concurrency": 1})


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("concurrency", "ten", "use a whole number of 1 or more"),
        ("concurrency", "0", "use a whole number of 1 or more"),
        ("concurrency", "1.5", "use a whole number of 1 or more"),
        ("queue_bound", "0", "use a whole number of 1 or more, or none"),
        ("lease_seconds", "0", "use seconds as a number, 0.001 or more"),
        ("drain_seconds", "-1", "use seconds as a number, 0 or more"),
        ("drain_seconds", "nan", "use seconds as a number"),
        ("drain_seconds", "inf", "use seconds as a number"),
        ("drain_seconds", "30s", "use seconds as a number"),
        ("keeper", "perhaps", "use true or false"),
        ("log_level", "loud", "use debug, info, warning or error"),
        ("order_policy", "fair", "use promote, strict, head_start or weighted"),
        ("order_weighted_low", "0", "use a whole number of 1 or more"),
        ("backoff_factor", "0.5", "use a number from 1.0 to 1000"),
        ("backoff_jitter", "2", "use a number from 0.0 to 1.0"),
        ("defaults_low_max_retries", "-1", "use a whole number from 0 to 10,000"),
        ("payload_limit", "1", "use a whole number of bytes, 2 or more"),
        ("queues", "a b", "use a list of names"),
        ("queues", ",", "use a list of names"),
        ("share", "some", "use rank, all or strict"),
        ("capabilities", "gpu/1", "use a list of names"),
        ("store", " ", "use text"),
    ],
)
def test_a_wrong_value_names_the_key_the_value_its_origin_and_the_remedy(
    key: str, value: str, remedy: str, tmp_path: Path
) -> None:
    for says, origin in (
        (refusal(tmp_path, None, None, **{f"FAIRLEAD_{key.upper()}": value}), f"FAIRLEAD_{key.upper()}"),
        (refusal(tmp_path, flags={key: value}), f"--{key.replace('_', '-')}"),
    ):
        assert f"{key} cannot be {value!r} (from {origin})" in says
        assert remedy in says


@pytest.mark.parametrize("weight", ["", "0", "-1", "nan", "1e9", "x"])
def test_a_queue_has_a_weight_or_none(weight: str, tmp_path: Path) -> None:
    says = refusal(tmp_path, flags={"queues": f"web={weight},bulk"})
    assert "(from --queues): weight of queue web" in says
    assert "use a number from 0.01 to 100" in says


@pytest.mark.parametrize(
    "file",
    [
        'concurrency = "10"',
        "concurrency = 1.5",
        "concurrency = true",
        "concurrency = [1]",
        "concurrency = { most = 1 }",
        "keeper = 1",
        "store = 5",
        "queues = [1]",
        "queues = []",
        "drain_seconds = inf",
        "drain_seconds = 2020-01-01",
    ],
)
def test_a_wrong_type_in_the_file_is_refused(file: str, tmp_path: Path) -> None:
    key = file.partition(" ")[0]

    assert f"{key} cannot be " in refusal(tmp_path, file)
    assert f"(from {tmp_path / 'fairlead.toml'})" in refusal(tmp_path, file)


def test_a_key_set_twice_in_the_file_is_refused(tmp_path: Path) -> None:
    says = refusal(tmp_path, "retention_failed_seconds = 1\n[retention]\nfailed_seconds = 2")

    assert "sets retention_failed_seconds twice, as retention_failed_seconds and as retention.failed_seconds" in says


def test_a_lease_too_short_for_its_heartbeat_names_both_and_their_origins(tmp_path: Path) -> None:
    says = refusal(tmp_path, "heartbeat_seconds = 8", FAIRLEAD_LEASE_SECONDS="15")

    assert says.startswith("lease_seconds 15 (FAIRLEAD_LEASE_SECONDS) is less than twice heartbeat_seconds 8 (")
    assert "fairlead.toml" in says


def test_a_named_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path / 'gone.toml'} does not exist" in refusal(tmp_path, FAIRLEAD_CONFIG="gone.toml")


def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    assert "is not valid TOML" in refusal(tmp_path, "concurrency 10")
    assert "line 1" in refusal(tmp_path, "concurrency 10")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fairlead.toml").write_bytes(b"\xff\xfe")

    assert "is not valid TOML" in refusal(tmp_path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fairlead.toml").mkdir()

    assert "cannot be read: Is a directory" in refusal(tmp_path)


# Secrets


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("postgresql://ada:hunter2@db/tasks", "postgresql://ada:***@db/tasks"),
        ("postgresql://ada:hun@ter/2@db/tasks", "postgresql://ada:***@db/tasks"),
        ("postgresql://db/tasks?user=ada&password=hunter2&sslmode=require", None),
        ("smtps://ada@host", "smtps://***@host"),
        ("sqlite:///C:/tasks@home.db", "sqlite:///C:/tasks@home.db"),
        (5, 5),
    ],
)
def test_passwords_are_masked(value: object, shown: object) -> None:
    assert "hunter2" not in str(masked(value))
    if shown is not None:
        assert shown == masked(value)


def test_no_way_of_showing_a_configuration_tells_a_password(tmp_path: Path) -> None:
    configuration = read(tmp_path, FAIRLEAD_SMTP_URL="smtp://ada:hunter2@host")

    assert configuration.smtp_url == "smtp://ada:hunter2@host"
    assert "hunter2" not in repr(configuration)
    assert "hunter2" not in repr(list(configuration.__rich_repr__()))
    assert "hunter2" not in repr(list(configuration.entries()))


def test_a_refusal_does_not_tell_a_password(tmp_path: Path) -> None:
    assert "hunter2" not in refusal(tmp_path, FAIRLEAD_CONCURRENCY="redis://:hunter2@cache")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:hunter2@host/tasks",
        "sqlite://ada:hunter2@host/tasks",
        "postgresql://ada:hunter2@host/tasks?nonsense=1",
        "postgresql://ada:hunter2%@host/tasks",
        "postgresql://ada:hunter2@[::1/tasks",
        "redis://ada:hunter2@host/nonsense",
    ],
)
def test_a_store_url_that_is_refused_is_shown_without_its_password_in_one_line(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Fairlead(url)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value) and ";" in str(refused.value)


async def test_a_store_url_whose_package_is_missing_is_shown_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    for name in [name for name in sys.modules if name.startswith("fairlead.storage.redis.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidSettings, match="needs the package 'hiredis'; pip install") as refused:
        await open_store("redis://ada:hunter2@host")
    assert "redis://ada:***@host" in str(refused.value)
