"""Every page, looked at with real tasks on a real server."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.dashboard.site import Site, Visitor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def stocked(site: Site) -> dict[str, str]:
    """Tasks in every state, by what they are there for."""
    site.submit_many([{"task_type": "echo", "parameters": {"message": number}} for number in range(20)])
    names = {
        "done": site.submit("echo", parameters={"message": {"deep": [1, {"er": None}]}}, priority="high"),
        "big": site.submit("echo", parameters={"message": 1}, tags=["blue"], trace_id="00-trace-span-01"),
        "dead": site.submit("fail", parameters={"message": "no route to 10.1.2.3"}, max_retries=0),
        "failed": site.submit("fail", parameters={"message": "refused", "retriable": False}),
        "running": site.submit("sleep", parameters={"seconds": 900}),
        "later": site.submit("echo", delay_seconds=3600),
        "unserved": site.submit("nobody_runs_this", queue="mail", priority="critical"),
    }
    site.ask("POST", "/api/v1/schedules", {
        "name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "task": {"task_type": "echo"},
    })  # fmt: skip
    site.until(
        lambda: site.counts() | {"completed": 22, "dead_letter": 1, "failed": 1, "executing": 1} == site.counts(),
        "all tasks in their states",
    )
    return names


def test_every_page_shows_what_there_is(site: Site, visitor: Visitor) -> None:
    tasks = stocked(site)
    page = visitor.go("/")
    expect(page.get_by_role("region", name="Health")).to_contain_text("No worker serves the queue mail")
    expect(page.get_by_role("link", name=re.compile("^Dead letters 1"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Waiting by priority"))).to_be_visible()

    page = visitor.go("/tasks?q=state:executing")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("row").nth(1).get_by_role("link").first.click()
    expect(page).to_have_url(f"{site.url}/tasks/{tasks['running']}")
    expect(page.get_by_role("heading", name="sleep")).to_be_visible()
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("claimed")

    page = visitor.go(f"/tasks/{tasks['dead']}")
    expect(page.get_by_role("region", name="Error")).to_contain_text("RuntimeError")
    expect(page.get_by_label("Traceback")).to_contain_text("raise RuntimeError")
    expect(page.get_by_role("region", name="Parameters")).to_contain_text("no route to 10.1.2.3")

    page = visitor.go(f"/tasks/{tasks['done']}")
    expect(page.get_by_role("region", name="Result")).to_contain_text("er: null")
    page = visitor.go(f"/tasks/{tasks['big']}")
    expect(page.get_by_role("region", name="Status")).to_contain_text("00-trace-span-01")

    page = visitor.go(f"/tasks/{tasks['unserved']}")
    expect(page.get_by_role("region", name="Why it waits")).to_contain_text("worker")

    after = site.submit("echo", after=[tasks["running"]])
    page = visitor.go(f"/tasks/{after}")
    expect(page.get_by_role("region", name="Status")).to_contain_text("1 of 1 not finished yet")

    page = visitor.go("/dead-letters")
    expect(page.get_by_role("region", name="Groups")).to_contain_text("no route to")
    expect(page.get_by_text("1 dead letter in 1 group")).to_be_visible()

    page = visitor.go("/queues")
    expect(page.get_by_role("row", name=re.compile("^mail"))).to_contain_text("no workers")
    page.get_by_role("link", name="default").click()
    expect(page.get_by_role("region", name="Order of service")).to_contain_text("treated as medium after 10 min")
    expect(page.get_by_role("region", name="Waiting by priority")).to_contain_text("critical")

    page = visitor.go("/schedules")
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("region", name="Next runs").get_by_role("listitem")).to_have_count(10)
    expect(page.get_by_role("region", name="Next runs")).to_contain_text("T03:00")

    page = visitor.go("/workers")
    page.get_by_role("main").get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_role("region", name="Running tasks")).to_contain_text("sleep")

    page = visitor.go("/operations")
    expect(page.get_by_text("No recent operations")).to_be_visible()
    page = visitor.go("/try")
    expect(page.get_by_role("button", name="Submit 200 tasks")).to_be_visible()


def test_tenants_that_share_a_queue_are_seen_weighed_and_cancelled(site: Site, visitor: Visitor) -> None:
    expect(visitor.go("/tenants").get_by_text("No queue is shared yet")).to_be_visible()
    site.ask("PATCH", "/api/v1/queues/mail", {"fair": "tenant"})
    waiting = {"task_type": "nobody_runs_this", "queue": "mail"}
    site.submit_many([waiting | {"tenant": "acme"}] * 120)
    site.submit_many([waiting | {"tenant": "umbrella"}] * 2)

    page = visitor.go("/tenants")
    acme = page.get_by_role("row", name=re.compile("^acme"))
    expect(acme).to_contain_text("noisy neighbour")
    expect(acme).to_contain_text("120")
    expect(acme).to_contain_text("50 %")
    expect(page.get_by_role("row", name=re.compile("^umbrella"))).not_to_contain_text("noisy")

    page.get_by_label("New weight of umbrella in mail").fill("3")
    page.get_by_role("button", name="Set weight of umbrella in mail").click()
    expect(acme).to_contain_text("25 %")
    assert site.ask("GET", "/api/v1/queues/mail")["settings"]["weight"] == {"umbrella": 3.0}

    page.get_by_role("button", name="Cancel all that waits of acme in mail").click()
    expect(page.get_by_role("dialog")).to_contain_text("matches 120 tasks")
    page.get_by_role("dialog").get_by_role("button", name="Cancel 120 tasks").click()
    site.until(lambda: site.counts().get("cancelled") == 120, "the tasks of one tenant cancelled")
    assert site.counts()["queued"] == 2

    page = visitor.go("/tenants")
    page.get_by_role("link", name="umbrella").click()
    expect(page.get_by_role("row")).to_have_count(3)


def test_a_search_is_an_address_that_can_be_shared(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_site.submit_many(
        [{"task_type": "echo", "queue": "mail", "parameters": {"user": number}} for number in range(120)]
    )
    page = sqlite_visitor.go("/tasks")
    expect(page.get_by_role("row")).to_have_count(51)
    page.get_by_role("button", name="Next page").click()
    expect(page).to_have_url(re.compile("cursor="))
    expect(page.get_by_role("button", name="First page")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="First page")).to_have_count(0)

    page.get_by_role("searchbox").fill("params.user:7")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("button", name=re.compile("^queued")).click()
    expect(page).to_have_url(re.compile(r"q=params\.user%3A7\+state%3Aqueued"))
    shared = page.url

    page.get_by_label("Priority", exact=True).select_option("critical")
    expect(page.get_by_text("No matches")).to_be_visible()
    page.goto(shared)
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("searchbox")).to_have_value("params.user:7 state:queued")


def test_a_mistake_in_a_query_is_pointed_at(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_visitor.forgiven.append("400 ")
    page = sqlite_visitor.go("/tasks?q=queue:mail+sate:failed")
    expect(page.get_by_role("alert")).to_contain_text("did you mean state?")
    expect(page.get_by_role("alert")).to_contain_text("^^^^")


def test_what_is_not_there_says_what_to_do(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    sqlite_visitor.forgiven.append("404 ")
    page = sqlite_visitor.go("/tasks")
    expect(page.get_by_text("No tasks yet")).to_be_visible()
    page = sqlite_visitor.go("/")
    expect(page.get_by_text("All is well: no tasks are waiting.")).to_be_visible()
    page = sqlite_visitor.go("/tasks/01a1dfb3902d8b1e80df767ebade9719")
    expect(page.get_by_role("heading", name="Task not found")).to_be_visible()
    for path, words in (
        ("/dead-letters", "No dead letters"),
        ("/queues", "No queues yet"),
        ("/schedules", "No schedules yet"),
        ("/quarantine", "The quarantine is empty"),
    ):
        expect(sqlite_visitor.go(path).get_by_text(words)).to_be_visible()


def test_numbers_that_a_browser_cannot_count_are_shown_to_the_digit(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    body = b'{"task_type": "echo", "parameters": {"message": 90071992547409931234, "rate": 1.10}}'
    answer = httpx.post(f"{sqlite_site.url}/api/v1/tasks", content=body, headers={"content-type": "application/json"})
    page = sqlite_visitor.go(f"/tasks/{answer.json()['task_id']}")
    expect(page.get_by_role("region", name="Parameters")).to_contain_text("90071992547409931234")
    expect(page.get_by_role("region", name="Parameters")).to_contain_text("1.10")
