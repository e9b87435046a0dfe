"""What people do on the pages: it asks first, it is done to what was seen, and it shows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store
from tests.dashboard.site import Site, Visitor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def agree(page: Page, verb: str) -> None:
    """Answer the question on the page."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name=verb).click()
    expect(dialog).to_have_count(0)


def test_all_that_a_search_means_is_cancelled_after_a_count(site: Site, visitor: Visitor) -> None:
    site.submit_many([{"task_type": "spam", "queue": "mail", "priority": "low"} for _ in range(70)])
    kept = site.submit("ham", queue="mail")
    page = visitor.go("/tasks?q=type:spam")
    page.get_by_role("button", name="Cancel all matching").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("matches 70 tasks")
    dialog.get_by_role("button", name="Go back").click()
    expect(dialog).to_have_count(0)
    assert site.counts()["cancelled"] == 0

    page.get_by_role("button", name="Cancel all matching").click()
    agree(page, "Cancel 70 tasks")
    expect(page.get_by_role("row", name=re.compile("cancelled"))).to_have_count(50)
    site.until(lambda: site.counts()["cancelled"] == 70, "70 cancelled tasks")
    assert site.task(kept)["status"] == "queued"

    page.get_by_role("link", name="View", exact=True).click()
    expect(page.get_by_role("region", name="Operations")).to_contain_text("70 of 70")
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")


def test_a_selection_is_given_another_priority(site: Site, visitor: Visitor) -> None:
    ids = site.submit_many([{"task_type": "report", "queue": "mail", "priority": "low"} for _ in range(5)])
    page = visitor.go("/tasks?q=type:report")
    for task_id in ids[:2]:
        page.locator(f"[data-task='{task_id}']").get_by_role("checkbox").check()
    page.get_by_label("Change the priority of 2 selected").select_option("critical")
    agree(page, "Change the priority of 2 tasks")
    for task_id in ids[:2]:
        expect(page.locator(f"[data-task='{task_id}']")).to_contain_text("critical")
    site.until(lambda: site.task(ids[0])["priority"] == "critical", "the new priority")
    assert site.task(ids[4])["priority"] == "low"


def test_dead_letters_are_tried_with_a_canary_and_the_rest_discarded(site: Site, visitor: Visitor) -> None:
    site.submit_many(
        [{"task_type": "fail", "parameters": {"message": f"no room {number}"}, "max_retries": 0} for number in range(9)]
    )
    site.until(lambda: site.counts()["dead_letter"] == 9, "9 dead letters")
    page = visitor.go("/dead-letters")
    expect(page.get_by_role("region", name="Groups").get_by_role("row")).to_have_count(2)
    page.get_by_label("Pause after").fill("2")
    page.get_by_role("button", name="Replay all 9").click()
    expect(page.get_by_role("dialog")).to_contain_text("pauses after 2 tasks")
    agree(page, "Replay 9 tasks")
    operations = page.get_by_role("region", name="Operations")
    expect(operations).to_contain_text("the canary of 2 is done")
    operations.get_by_role("button", name="Resume").click()
    expect(operations).to_contain_text("9 of 9")

    site.until(lambda: site.counts()["dead_letter"] == 9, "9 dead letters again")
    page.reload()
    page.get_by_role("button", name=re.compile("^Discard 9 of fail")).click()
    agree(page, "Discard 9 tasks")
    expect(operations).to_contain_text("discard")
    site.until(lambda: site.counts()["dead_letter"] == 0, "no dead letters")


def damaged(site: Site, kind: str, name: str, value: bytes) -> None:
    """Put a record into the site's store that cannot be decoded."""
    store = run_inline(open_store(site.store, blocking=True))
    run_inline(store.put(kind, name, value))
    run_inline(store.close())


def test_what_was_set_aside_is_told_restored_and_discarded(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_visitor.forgiven.append("409 ")
    damaged(sqlite_site, "queue", "mail", b"?")
    damaged(sqlite_site, "schedule", "nightly", b"?")
    sqlite_site.ask("GET", "/api/v1/queues")
    sqlite_site.ask("GET", "/api/v1/schedules")
    sqlite_site.until(
        lambda: len(sqlite_site.ask("GET", "/api/v1/queue/stats")["quarantined"]) == 2, "the count of the quarantine"
    )
    page = sqlite_visitor.go("/queues")
    expect(page.get_by_role("row", name=re.compile("^mail"))).to_contain_text("unreadable")
    page = sqlite_visitor.go("/queues/mail")
    expect(page.get_by_text("paused: its settings cannot be read")).to_be_visible()
    page = sqlite_visitor.go("/")
    verdict = page.get_by_role("region", name="Health")
    expect(verdict).to_contain_text("Records that cannot be read are in quarantine: 1 queue, 1 schedule")
    verdict.get_by_role("link").first.click()
    table = page.get_by_role("region", name="Quarantine")
    expect(table.get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="Restore schedule/nightly").click()
    expect(page.get_by_text("still cannot be decoded")).to_be_visible()
    page.get_by_role("button", name="Discard queue/mail").click()
    agree(page, "Discard the record")
    expect(table.get_by_role("row")).to_have_count(2)
    assert [each["record"] for each in sqlite_site.ask("GET", "/api/v1/quarantine")["records"]] == ["schedule/nightly"]


def test_one_task_is_replayed_discarded_and_cancelled(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    dead = sqlite_site.submit("fail", max_retries=0)
    running = sqlite_site.submit("sleep", parameters={"seconds": 900})
    sqlite_site.until(lambda: sqlite_site.counts()["dead_letter"] == 1, "a dead letter")
    page = sqlite_visitor.go(f"/tasks/{dead}")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("attempt 2")
    page.get_by_role("button", name="Discard").click()
    agree(page, "Discard the task")
    expect(page).to_have_url(f"{sqlite_site.url}/tasks")
    expect(page.locator(f"[data-task='{dead}']")).to_have_count(0)

    page = sqlite_visitor.go(f"/tasks/{running}")
    page.get_by_role("button", name="Cancel").click()
    agree(page, "Cancel the task")
    expect(page.get_by_role("region", name="Status")).to_contain_text("cancelled")


def test_a_queue_is_paused_resumed_bounded_and_purged(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_site.submit_many([{"task_type": "letter", "queue": "mail"} for _ in range(3)])
    page = sqlite_visitor.go("/queues")
    page.get_by_role("button", name="Pause mail").click()
    expect(page.get_by_role("row", name=re.compile("^mail"))).to_contain_text("paused")
    page.get_by_role("button", name="Resume mail").click()
    expect(page.get_by_role("button", name="Pause mail")).to_be_visible()

    page.get_by_role("link", name="mail").click()
    page.get_by_label("Most waiting").fill("7")
    page.get_by_label("Most started").fill("10/s")
    page.get_by_role("button", name="Set limits").click()
    expect(page.get_by_role("region", name="Limits")).to_contain_text("bound 7")
    expect(page.get_by_role("region", name="Limits")).to_contain_text("rate 10/s")
    page.get_by_role("button", name="Pause type letter").click()
    expect(page.get_by_role("button", name="Resume type letter")).to_be_visible()

    page.get_by_role("button", name="Purge").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Purge 3 tasks")
    expect(confirm).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("mail")
    confirm.click()
    sqlite_site.until(lambda: sqlite_site.counts()["queued"] == 0, "an empty queue")


def test_a_circuit_is_opened_and_closed(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_site.submit("letter", queue="mail")
    sqlite_site.ask("PUT", "/api/v1/task-types/letter/circuit", {})
    page = sqlite_visitor.go("/queues")
    page.get_by_role("button", name="Open the circuit breaker of letter").click()
    page.get_by_role("button", name="Close the circuit breaker of letter").click()
    expect(page.get_by_role("button", name="Open the circuit breaker of letter")).to_be_visible()


def test_a_schedule_is_run_paused_and_resumed(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    schedule = {"name": "nightly", "cron": "0 3 * * *", "task": {"task_type": "echo"}}
    sqlite_site.ask("POST", "/api/v1/schedules", schedule)
    page = sqlite_visitor.go("/schedules/nightly")
    page.get_by_role("button", name="Run now: nightly").click()
    expect(
        page.get_by_role("region", name="Last runs").get_by_role("row", name=re.compile("completed"))
    ).to_be_visible()
    page.get_by_role("button", name="Pause nightly").click()
    expect(page.get_by_role("button", name="Resume nightly")).to_be_visible()
    assert sqlite_site.ask("GET", "/api/v1/schedules/nightly")["paused"] is True


def test_a_worker_is_paused_and_resumed(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    page = sqlite_visitor.go("/workers")
    page.get_by_role("main").get_by_role("row").nth(1).get_by_role("link").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("region", name="Status")).to_contain_text("paused")
    (worker,) = sqlite_site.ask("GET", "/api/v1/workers")["workers"]
    assert worker["paused"] is True
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("region", name="Status")).to_contain_text("active")


def test_a_worker_is_drained(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_site.submit("sleep", parameters={"seconds": 900})
    page = sqlite_visitor.go("/workers")
    page.get_by_role("main").get_by_role("row").nth(1).get_by_role("link").click()
    page.get_by_role("button", name="Drain").click()
    agree(page, "Drain the worker")
    expect(page.get_by_role("region", name="Status")).to_contain_text(re.compile("drain requested|draining"))


def test_a_burst_is_served_in_the_order_of_its_priorities(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    page = sqlite_visitor.go("/try")
    for priority, number in (("critical", 3), ("high", 0), ("medium", 0), ("low", 4)):
        page.get_by_label(priority, exact=True).fill(str(number))
    page.get_by_label("each sleeps").fill("0.05")
    page.get_by_role("button", name="Submit 7 tasks").click()
    expect(page.get_by_text("All 7 tasks are done.")).to_be_visible()
    expect(page.get_by_role("region", name="Done, in the order of their start").get_by_role("link")).to_have_count(7)
