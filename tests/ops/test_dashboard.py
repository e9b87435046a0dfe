"""The dashboard for Grafana: every query names what there is, and Prometheus understands it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ops.metrics import KNOWN, names_in, unknown_in
from tests.ops.reading import DASHBOARD, alerts, panels
from tests.servers.prometheus import promtool_or_skip

BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")

each_panel = pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


@each_panel
def test_a_panel_names_only_metrics_and_labels_that_there_are(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        assert names_in(expression).metrics and unknown_in(expression) == set()


@each_panel
def test_a_legend_speaks_only_of_labels_that_its_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        said = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = re.findall(r"\bby \(([^)]*)\)", target["expr"])
        assert said <= {label.strip() for labels in kept for label in labels.split(",")} - {"le"}


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    asked = [expression for panel in panels() for expression in expressions(panel)]
    rules = [
        {"record": f"panel_{number}", "expr": expression.replace("$__rate_interval", "5m").replace("$queue", ".*")}
        for number, expression in enumerate(asked)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    ended = subprocess.run([promtool_or_skip(), "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_it_shows_every_metric_that_there_is() -> None:
    shown = {
        metric for panel in panels() for expression in expressions(panel) for metric in names_in(expression).metrics
    }
    assert {HISTOGRAM.sub("", metric) for metric in shown} == {HISTOGRAM.sub("", metric) for metric in KNOWN}


def test_it_has_its_parts_and_no_panel_covers_another() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Queue health", "Worker pool", "Task flow", "Errors", "Performance"]
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_what_it_is_told_to_ask_by_name_is_there() -> None:
    sources = {json.dumps(panel["datasource"]) for panel in panels()}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = {name for panel in panels() for text in expressions(panel) for name in re.findall(r"\$(\w+)", text)}
    assert used - {"__rate_interval"} <= variables
    named = {name for panel in panels() for name in re.findall(r"Fairlead\w+", panel["description"])}
    assert named == {alert["alert"] for alert in alerts()}
