"""Metrics as Prometheus would read them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from fairlead.engine.metrics.names import Family, Samples, render


class Read:
    """The samples of a page, by name and labels."""

    def __init__(self, page: str) -> None:
        self.families = list(text_string_to_metric_families(page))
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The value of a sample; None if there is none. The label `from_` is `from`."""
        return self._samples.get((name, frozenset((key.rstrip("_"), value) for key, value in labels.items())))

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label takes."""
        return {dict(pairs)[label] for sample, pairs in self._samples if sample == name}

    @property
    def names(self) -> set[str]:
        """The names of the metrics, as Prometheus knows them."""
        return {f"{family.name}_total" if family.type == "counter" else family.name for family in self.families}


def read(families: Iterable[tuple[Family, Samples]]) -> Read:
    return Read(render(families).decode())
