"""How tests read PromQL and scrapes: what they would not see, no test of rules or panels could find."""

from __future__ import annotations

import pytest

from tests.ops.metrics import KNOWN, Names, names_in, series, unknown_in


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up", {"up"}, set()),
        ('sum by (queue) (max by (queue, priority) (a_b{priority=~"x|y"})) > 1000', {"a_b"}, {"queue", "priority"}),
        ('(max(a{s="active"}) or vector(0)) == 0', {"a"}, {"s"}),
        ("histogram_quantile(0.95, sum by (le) (rate(a_bucket[$__rate_interval])))", {"a_bucket"}, {"le"}),
        ("a / on (x) group_left (y) b offset 5m", {"a", "b"}, {"x", "y"}),
        ('rate(a{type="b{c}", d!="sum by (e)"}[5m])', {"a"}, {"type", "d"}),
        ('topk(5, a{queue=~"$queue"})', {"a"}, {"queue"}),
    ],
)
def test_an_expression_names_its_metrics_and_labels(expression: str, metrics: set[str], labels: set[str]) -> None:
    assert names_in(expression) == Names(frozenset(metrics), frozenset(labels))


def test_what_fairlead_does_not_have_is_found() -> None:
    assert unknown_in('sum by (queue) (fairlead_queue_depth{priority="low", instance="a"})') == set()
    assert unknown_in("fairlead_queue_length") == {"fairlead_queue_length"}
    assert unknown_in('fairlead_workers{state="active"}') == {"state"}
    assert unknown_in("rate(fairlead_queue_wait_seconds[5m])") == {"fairlead_queue_wait_seconds"}


def test_a_histogram_has_three_series() -> None:
    assert series([("a", "histogram", ("x",)), ("b", "gauge", ())]) == {
        "a_bucket": frozenset({"x", "le"}),
        "a_sum": frozenset({"x"}),
        "a_count": frozenset({"x"}),
        "b": frozenset(),
    }


def test_every_series_has_a_name_of_its_own() -> None:
    assert all(name.startswith("fairlead_") for name in KNOWN)
