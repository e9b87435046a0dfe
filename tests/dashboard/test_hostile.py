"""Whatever a task is called or carries is shown as text: nothing of it becomes part of the page."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.dashboard.site import Site, Visitor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAYLOADS: Final = (
    "<img src=x onerror=window.pwned=1>",
    "</script><script>window.pwned=1</script>",
    "\"'><svg onload=window.pwned=1>",
    "javascript:window.pwned=1",
    "{{constructor.constructor('window.pwned=1')()}}",
    "{@html '<b id=pwned>'}",
)
NAME: Final = "constructor.__proto__"
"""As hostile as a name can be."""


def test_a_payload_in_every_field_stays_text(site: Site, visitor: Visitor) -> None:
    attack = " ".join(PAYLOADS)
    dead = site.submit(
        "fail",
        parameters={"message": attack},
        max_retries=0,
        tenant=attack[:500],
        idempotency_key=attack[:500],
        trace_id=attack[:500],
        tags=[NAME],
    )
    waiting = site.submit(NAME, queue=NAME, parameters={attack: {attack: [attack]}, "__proto__": {"x": 1}})
    site.until(lambda: site.counts()["dead_letter"] == 1, "a dead letter")
    site.ask("POST", "/api/v1/schedules", {
        "name": NAME, "cron": "@daily", "task": {"task_type": NAME, "parameters": {attack: attack}},
    })  # fmt: skip
    worker = site.ask("POST", "/internal/workers/register", {
        "queues": ["nowhere"], "capacity": 1, "host": attack[:200], "version": attack[:100],
    })["worker_id"]  # fmt: skip
    running = site.submit("held", queue="nowhere")
    (task,) = site.ask("POST", f"/internal/workers/{worker}/poll", {"available_capacity": 1, "wait_seconds": 5})[
        "tasks"
    ]
    held = {"task_id": running, "lease": task["lease"]}
    site.ask("POST", f"/internal/workers/{worker}/progress", held | {"percent": 3, "message": attack[:200]})

    page = visitor.page
    for path, shown in (
        ("/", NAME),
        ("/tasks", PAYLOADS[0]),
        (f"/tasks?q=%22{PAYLOADS[0]}%22", PAYLOADS[0]),
        (f"/tasks/{dead}", PAYLOADS[1]),
        (f"/tasks/{waiting}", PAYLOADS[2]),
        (f"/tasks/{running}", PAYLOADS[0]),
        ("/dead-letters", "<img src=x"),
        ("/queues", NAME),
        (f"/queues/{NAME}", NAME),
        ("/schedules", NAME),
        (f"/schedules/{NAME}", PAYLOADS[2]),
        ("/workers", PAYLOADS[0]),
        (f"/workers/{worker}", PAYLOADS[0]),
    ):
        visitor.go(path)
        expect(page.get_by_role("main")).to_contain_text(shown)
        assert page.evaluate("[window.pwned, document.querySelectorAll('#pwned, main img, main script').length]") == [
            None,
            0,
        ], path
        assert page.locator("a[href^='javascript:']").count() == 0, path


def test_an_address_cannot_be_made_to_run_anything(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_visitor.forgiven += ["404 ", "400 "]
    for path in ("/tasks/<img src=x onerror=window.pwned=1>", "/queues/%3Cimg%20src=x%20onerror=window.pwned=1%3E"):
        page = sqlite_visitor.go(path)
        expect(page.get_by_role("main")).to_contain_text("<img src=x")
        assert page.evaluate("window.pwned") is None
