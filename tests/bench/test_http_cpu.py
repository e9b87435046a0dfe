"""What a request costs a server's CPU, beside another server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from bench.http_cpu import CONNECTIONS, Refused, Target, paired, table
from bench.serving import served


@contextlib.contextmanager
def target() -> Iterator[Target]:
    with served("memory://") as (url, process), contextlib.closing(Target(url, process)) as opened:
        yield opened


def test_every_operation_costs_either_server_something() -> None:
    with target() as own, target() as other:
        costs = paired((own, other), 2 * CONNECTIONS)
    assert set(costs) == {"submit", "batch", "stats", "task", "list", "poll", "result"}
    assert all(cost > 0 for pair in costs.values() for cost in pair)


def test_answers_are_in_the_order_of_their_requests_whoever_is_quicker() -> None:
    with target() as server:
        names = [f"task-{number}" for number in range(3 * CONNECTIONS)]
        answers = server.ask([server.request("POST", "/api/v1/tasks", {"task_type": name}) for name in names])
    assert [name in answer.decode() for name, answer in zip(names, answers, strict=True)] == [True] * len(names)


def test_a_request_that_is_refused_ends_the_measurement() -> None:
    with target() as server, pytest.raises(Refused, match="404"):
        server.ask([server.request("GET", "/nowhere")])


def test_the_table_has_the_median_of_the_ratios_not_the_ratio_of_the_medians() -> None:
    costs = {"submit": [(10.0, 20.0), (20.0, 10.0), (20.0, 20.0)]}
    (row,) = [line for line in table("memory", costs).splitlines() if "submit" in line]
    assert row.startswith("| memory | submit | 20.0 | 20.0 | 1.000 |")
