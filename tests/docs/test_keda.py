"""The manifests for KEDA ask for what there is."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.admin.workers.api import SHOW_AUTOSCALE, Autoscale, AutoscaleQuery
from fairlead.engine.metrics.names import CATALOGUE
from tests.docs.reading import ROOT

FOLDER = ROOT / "ops" / "kubernetes"


def test_the_endpoint_that_keda_asks_and_the_value_that_it_takes_exist() -> None:
    text = (FOLDER / "keda-metrics-api.yaml").read_text("utf-8")
    (url,) = re.findall(r'url: "(\S+)"', text)
    assert urlsplit(url).path == SHOW_AUTOSCALE.path
    assert parse_qs(urlsplit(url).query).keys() <= set(AutoscaleQuery.__struct_fields__)
    (location,) = re.findall(r'valueLocation: "(\S+)"', text)
    assert location in Autoscale.__struct_fields__


@pytest.mark.parametrize("page", [FOLDER / "keda-prometheus.yaml", ROOT / "docs" / "how-to" / "autoscale.md"], ids=str)
def test_the_metrics_that_keda_asks_for_exist(page: object) -> None:
    assert hasattr(page, "read_text")
    asked = set(re.findall(r"fairlead_[a-z_]+", page.read_text("utf-8")))
    assert asked and asked <= {family.name for family in CATALOGUE}
