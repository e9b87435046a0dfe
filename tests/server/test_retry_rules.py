"""Retry rules over HTTP: submitted, matched with what a worker in any language reports, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.serving import Service
from tests.server.workers import Hand

RULES: list[dict[str, Any]] = [
    {"error": "TimeoutError", "max_retries": 1, "retry_policy": {"initial_seconds": 0}},
    {"error": "ValueError", "reject": True},
    {"error": "net.Unreachable", "max_retries": 0},
]


async def submitted(service: Service, rules: Any, status: int = 201) -> Any:
    return await service.post("/api/v1/tasks", {"task_type": "a", "max_retries": 5, "retry_rules": rules}, status)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        ({"type": "TimeoutError", "message": ""}, "queued", "failed"),
        ({"type": "ValueError", "message": ""}, "failed", "rejected_by_rule"),
        ({"type": "Odd", "message": "", "names": ["app.Odd", "ValueError"]}, "failed", "rejected_by_rule"),
        ({"type": "net.dns.Unreachable", "message": ""}, "dead_letter", "rule_used_up"),
        ({"type": "Unreachable", "message": ""}, "scheduled", "failed"),
    ],
)
async def test_what_a_worker_reports_is_matched_by_name(
    service: Service, error: dict[str, Any], status: str, reason: str
) -> None:
    task_id = (await submitted(service, RULES))["task_id"]
    hand = await Hand.hired(service)
    answer = await hand.result(await hand.take(), "failed", error=error)
    shown = await service.get(f"/api/v1/tasks/{task_id}")
    assert (answer["status"], shown["status"], shown["reason"]) == (status, status, reason)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"error": "A", "reject": True, "max_retries": 1}], "'A' rejects"),
        ([{"error": "A"}, {"error": "A"}], "two retry rules for 'A'"),
        ([{"error": ""}], "name of its type"),
        ([{"error": "A", "max_retries": -1}], "max_retries"),
        ([{"error": "A", "retries": 1}], "retries"),
        ([{"error": "*"}, {"error": "A"}], "put it last"),
    ],
)
async def test_rules_that_make_no_sense_are_refused_by_name(service: Service, rules: Any, said: str) -> None:
    problem = await submitted(service, rules, 422)
    assert said in problem["detail"]
