"""The alerts: each is tested by promtool, says what to do, and is described."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.reading import anchors, section
from tests.ops.metrics import names_in, unknown_in
from tests.ops.reading import ROOT, RULE_TESTS, RULES, alerts, document
from tests.servers.prometheus import promtool_or_skip

PAGE = ROOT / "docs" / "how-to" / "alerts.md"
NAMES = [alert["alert"] for alert in alerts()]

each_alert = pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool_or_skip(), *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


def expectations(name: str) -> list[list[Any]]:
    """What the tests expect of an alert: for each look at it, the samples of it that fire."""
    return [
        look["exp_samples"]
        for test in document(RULE_TESTS)["tests"]
        for look in test["promql_expr_test"]
        if f'alertname="{name}"' in look["expr"]
    ]


def test_the_rules_are_valid_and_their_tests_pass() -> None:
    for command in (("check", "rules", RULES.name), ("test", "rules", RULE_TESTS.name)):
        ended = promtool(*command, folder=RULES.parent)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@each_alert
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: dict[str, Any]) -> None:
    looks = expectations(alert["alert"])
    assert [look for look in looks if look] and [look for look in looks if not look]


@pytest.mark.parametrize("expression", ["vector(1)", "vector(1) > 1"], ids=["always", "never"])
@each_alert
def test_the_tests_notice_an_alert_that_fires_always_or_never(
    alert: dict[str, Any], expression: str, tmp_path: Path
) -> None:
    rules = document(RULES)
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == alert["alert"]:
                rule["expr"] = expression
    (tmp_path / RULES.name).write_text(yaml.safe_dump(rules))
    (tmp_path / RULE_TESTS.name).write_text(RULE_TESTS.read_text())
    ended = promtool("test", "rules", RULE_TESTS.name, folder=tmp_path)
    assert ended.returncode != 0 and alert["alert"] in ended.stdout + ended.stderr


@each_alert
def test_an_alert_names_only_metrics_and_labels_that_there_are(alert: dict[str, Any]) -> None:
    assert names_in(alert["expr"]).metrics and unknown_in(alert["expr"]) == set()


@each_alert
def test_an_alert_says_what_to_do_and_where_to_read_on(alert: dict[str, Any]) -> None:
    annotations = alert["annotations"]
    assert set(annotations) == {"summary", "description", "runbook"}
    assert alert["labels"]["severity"] in {"warning", "critical"}
    page, _, anchor = annotations["runbook"].partition("#")
    assert ROOT / page == PAGE and anchor == alert["alert"].lower() and anchor in anchors(PAGE)


@each_alert
def test_an_alert_speaks_only_of_labels_that_it_has(alert: dict[str, Any]) -> None:
    kept = re.match(r"(?:sum|max) by \(([^)]*)\)", alert["expr"])
    had = set(kept[1].split(", ")) if kept else set()
    said = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    assert said == had


def test_the_page_has_a_section_for_each_alert_and_for_nothing_else() -> None:
    headings = re.findall(r"^## (Fairlead\w+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(NAMES)
    assert [name for name in NAMES if "**What to do**" not in section(PAGE, name)] == []
