"""The names of the original designs: each is recorded from a metric that there is, and tested by promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.reading import section
from tests.ops.metrics import KNOWN, names_in, unknown_in
from tests.ops.reading import OPS, ROOT, document
from tests.ops.test_alerts import promtool

RULES: Final = OPS / "prometheus" / "original-names.rules.yml"
CASES: Final = OPS / "prometheus" / "original-names.test.yml"
RECORDED: Final[dict[str, str]] = {
    rule["record"]: rule["expr"] for group in document(RULES)["groups"] for rule in group["rules"]
}

each_name = pytest.mark.parametrize("name", RECORDED)

DESIGNED: Final = {
    "queue_depth": {"priority"},
    "queue_age_seconds": {"priority"},
    "tasks_promoted_total": {"from", "to"},
    "task_duration_seconds": {"priority", "status"},
    "task_retries_total": {"priority", "reason"},
    "task_state_total": {"status"},
    "workers_total": {"status"},
    "worker_heartbeat_failures_total": set[str](),
    "tasks_failed_total": {"reason"},
    "tasks_dlq_total": set[str](),
    "taskqueue_tasks_submitted_total": set[str](),
    "taskqueue_tasks_completed_total": set[str](),
    "taskqueue_task_duration_seconds": set[str](),
    "taskqueue_queue_depth": set[str](),
    "taskqueue_dlq_size": set[str](),
}
"""The names of the original designs, with the labels that these give them."""


def samples(name: str) -> list[dict[str, Any]]:
    """What the tests expect a name to be."""
    return [
        sample
        for test in document(CASES)["tests"]
        for look in test["promql_expr_test"]
        if look["expr"] == name
        for sample in look["exp_samples"]
    ]


def metric_of(name: str) -> str:
    """The metric of a series: a histogram has three."""
    for end in ("_bucket", "_sum", "_count"):
        if name.removesuffix(end) in DESIGNED:
            return name.removesuffix(end)
    return name


def test_the_rules_are_valid_and_their_tests_pass() -> None:
    for command in (("check", "rules", RULES.name), ("test", "rules", CASES.name)):
        ended = promtool(*command, folder=RULES.parent)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_name_of_the_designs_is_recorded_and_nothing_else() -> None:
    assert {metric_of(name) for name in RECORDED} == DESIGNED.keys()
    for histogram in ("task_duration_seconds", "taskqueue_task_duration_seconds"):
        assert {f"{histogram}{end}" for end in ("_bucket", "_sum", "_count")} <= RECORDED.keys()
    assert not RECORDED.keys() & KNOWN.keys()


@each_name
def test_a_name_is_made_of_metrics_and_labels_that_there_are(name: str) -> None:
    assert names_in(RECORDED[name]).metrics and unknown_in(RECORDED[name]) == set()


@each_name
def test_a_name_has_a_case_that_shows_it_with_the_labels_of_the_designs(name: str) -> None:
    shown = samples(name)
    assert shown
    for sample in shown:
        assert DESIGNED[metric_of(name)] <= names_in(sample["labels"]).labels


@each_name
def test_the_tests_notice_a_name_that_is_made_of_something_else(name: str, tmp_path: Path) -> None:
    rules = document(RULES)
    for rule in rules["groups"][0]["rules"]:
        if rule["record"] == name:
            rule["expr"] = f"({rule['expr']}) + 1"
    (tmp_path / RULES.name).write_text(yaml.safe_dump(rules))
    (tmp_path / CASES.name).write_text(CASES.read_text())
    ended = promtool("test", "rules", CASES.name, folder=tmp_path)
    assert ended.returncode != 0 and name in ended.stdout + ended.stderr


def test_the_reference_says_what_each_name_is_made_of() -> None:
    told = section(ROOT / "docs" / "reference" / "metrics.md", "The names of the original designs")
    assert [name for name in DESIGNED if f"`{name}" not in told] == []
