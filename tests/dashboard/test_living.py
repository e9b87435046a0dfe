"""What happens while somebody looks: it shows by itself, and a lost connection comes back."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.site import Site, Visitor, visiting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_task_is_seen_through_its_life_without_a_touch(site: Site, visitor: Visitor) -> None:
    page = visitor.go("/tasks")
    expect(page.get_by_text("No tasks yet")).to_be_visible()
    task_id = site.submit("nobody_runs_this", queue="mail")
    row = page.locator(f"[data-task='{task_id}']")
    expect(row).to_contain_text("queued")
    site.ask("DELETE", f"/api/v1/tasks/{task_id}")
    expect(row).to_contain_text("cancelled")


def test_progress_and_the_end_of_a_task_show_on_its_page(site: Site, visitor: Visitor) -> None:
    task_id = site.submit("report", queue="mail")
    page = visitor.go(f"/tasks/{task_id}")
    stands = page.get_by_role("region", name="Status")
    expect(stands).to_contain_text("queued")
    worker = site.ask("POST", "/internal/workers/register", {"queues": ["mail"], "capacity": 1})["worker_id"]
    (task,) = site.ask("POST", f"/internal/workers/{worker}/poll", {"available_capacity": 1, "wait_seconds": 5})[
        "tasks"
    ]
    expect(stands).to_contain_text("executing")
    held = {"task_id": task_id, "lease": task["lease"]}
    site.ask("POST", f"/internal/workers/{worker}/progress", held | {"percent": 40, "message": "halfway, nearly"})
    expect(stands.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    expect(stands).to_contain_text("halfway, nearly")
    site.ask("POST", f"/internal/workers/{worker}/result", held | {"status": "completed", "result": {"pages": 3}})
    expect(page.get_by_role("region", name="Result")).to_contain_text("pages: 3")


def test_numbers_of_the_overview_move_by_themselves(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    page = sqlite_visitor.go("/")
    expect(page.get_by_role("link", name="Waiting 0")).to_be_visible()
    sqlite_site.submit_many([{"task_type": "letter", "queue": "mail"} for _ in range(7)])
    expect(page.get_by_role("link", name="Waiting 7")).to_be_visible()
    expect(page.get_by_role("region", name="Health")).to_contain_text("No worker serves the queue mail")


def test_nothing_moves_under_a_selection(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    first = sqlite_site.submit("letter", queue="mail")
    page = sqlite_visitor.go("/tasks")
    page.locator(f"[data-task='{first}']").get_by_role("checkbox").check()
    second = sqlite_site.submit("letter", queue="mail")
    page.get_by_role("button", name="Show 1 new").click()
    expect(page.locator(f"[data-task='{second}']")).to_be_visible()
    expect(page.locator(f"[data-task='{first}']").get_by_role("checkbox")).to_be_checked()


def test_a_lost_connection_is_shown_and_comes_back(site: Site, visitor: Visitor) -> None:
    visitor.forgiven += ["ERR_CONNECTION_REFUSED", "WebSocket", "Failed to load resource", "ERR_"]
    site.submit_many([{"task_type": "letter", "queue": "mail"} for _ in range(3)])
    page = visitor.go("/")
    expect(page.get_by_role("link", name="Waiting 3")).to_be_visible()
    site.stop(signal.SIGKILL)
    expect(page.get_by_role("alert")).to_contain_text("Connection lost")
    expect(page.get_by_text("Offline", exact=False).first).to_be_visible()
    # What was last known stays on the page.
    expect(page.get_by_role("link", name="Waiting 3")).to_be_visible()
    site.start()
    site.submit("letter", queue="mail")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("link", name="Waiting 4")).to_be_visible()


def test_a_key_is_asked_for_and_decides_what_can_be_done(browser: Browser, sqlite_site: Site) -> None:
    sqlite_site.submit("letter", queue="mail")
    keys = {role: _key(sqlite_site, role) for role in ("read", "admin")}
    # A server learns within seconds that there are keys now.
    session = f"{sqlite_site.url}/api/v1/session"
    sqlite_site.until(lambda: httpx.get(session).json()["key_needed"] is True, "a server that needs a key")
    with visiting(browser, sqlite_site.url) as visitor:
        visitor.forgiven.append("401 ")
        page = visitor.page
        page.goto(f"{sqlite_site.url}/queues/mail")
        page.get_by_label("API key", exact=True).fill("fl_nonsense")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown")
        page.get_by_label("API key", exact=True).fill(keys["read"])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("region", name="Waiting by priority")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Pause|Purge"))).to_have_count(0)
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("API key", exact=True).fill(keys["admin"])
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("paused")


def _key(site: Site, role: str) -> str:
    """A key that was made as people make one."""
    command = [sys.executable, "-m", "fairlead", "keys", "create", role, "--roles", role, "--store", site.store]
    made = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True)
    return str(msgspec.json.decode(made.stdout)["key"])
