"""The queries that pages show ask for metrics that exist, by labels that they have."""

from __future__ import annotations

import re

from fairlead.engine.metrics.names import CATALOGUE
from fairlead.worker.task_log import LogLine
from tests.docs.reading import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "monitor.md"
PROMETHEUS_OWN = {"le", "job", "instance"}


def test_every_metric_of_the_page_exists_and_has_the_labels_that_it_is_asked_by() -> None:
    text = PAGE.read_text("utf-8")
    families = {family.name: family for family in CATALOGUE}
    found = re.findall(r"(?:by \(([a-z, ]+)\) \()?(?:rate\()?(fairlead_[a-z_]+)(?:\{([a-z]+)=)?", text)
    assert len(found) > 10
    for grouped, name, selected in found:
        family = families[re.sub(r"_(bucket|sum|count)$", "", name)]
        asked = {label for label in (*grouped.replace(",", " ").split(), selected) if label}
        assert asked <= {*family.labels, *PROMETHEUS_OWN}, name


def test_the_log_line_of_the_page_has_the_fields_of_a_log_line() -> None:
    (block,) = (block.body for block in blocks(PAGE) if block.language == "json")
    shown = set(re.findall(r'"([a-z_]+)":', block))
    assert shown and shown <= set(LogLine.__struct_fields__)
