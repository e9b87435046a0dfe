"""The reference of metrics says what the code shows."""

from __future__ import annotations

from fairlead.engine.metrics.collector import MOST_NAMES, TIMED
from fairlead.engine.metrics.names import CATALOGUE
from tests.docs.reading import ROOT, section, table

PAGE = ROOT / "docs" / "reference" / "metrics.md"


def test_the_reference_lists_every_metric_as_the_code_knows_it() -> None:
    assert table(section(PAGE, "All of them")) == {
        family.name: (
            family.kind.value,
            ", ".join(f"`{label}`" for label in family.labels) or "–",
            family.source.value,
            family.doc,
        )
        for family in CATALOGUE
    }


def test_the_reference_names_every_operation_and_the_true_bound() -> None:
    text = PAGE.read_text("utf-8")
    assert [operation for operation in TIMED if f"`{operation}`" not in text] == []
    assert f"The first {MOST_NAMES} types" in text
