"""Every page, light and dark, full and empty, holds to WCAG 2.2 AA as far as axe can tell, and fits a phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.built import axe_or_skip
from tests.dashboard.site import Site, Visitor, visiting
from tests.dashboard.test_pages import stocked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: Page, axe: str) -> list[str]:
    """What axe finds wrong with a page."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate(
        "async tags => (await axe.run(document, {runOnly: tags})).violations", TAGS
    )
    return [f"{page.url}: {each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def paths(site: Site) -> list[str]:
    names = stocked(site)
    (worker,) = (each["worker_id"] for each in site.ask("GET", "/api/v1/workers")["workers"])
    site.ask("POST", "/api/v1/operations", {"action": "discard", "query": "type:nothing"})
    site.ask("PATCH", "/api/v1/queues/shared", {"fair": "tenant"})
    site.submit_many([{"task_type": "nobody_runs_this", "queue": "shared", "tenant": each} for each in "aab"])
    return [
        "/", "/tasks", "/tasks?q=type:nothing", f"/tasks/{names['dead']}", f"/tasks/{names['unserved']}",
        "/dead-letters", "/queues", "/queues/default", "/tenants", "/schedules", "/schedules/nightly", "/workers",
        f"/workers/{worker}", "/quarantine", "/operations", "/try", "/nowhere",
    ]  # fmt: skip


def settled(visitor: Visitor, path: str) -> Page:
    if path == "/nowhere":
        visitor.go("/")
        visitor.page.evaluate("history.pushState(null, '', 'tasks/a/b'); dispatchEvent(new PopStateEvent('popstate'))")
        return visitor.page
    page = visitor.go(path)
    expect(page.get_by_text("Loading…")).to_have_count(0)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong_on_any_page(browser: Browser, site: Site, scheme: str) -> None:
    axe = axe_or_skip()
    with visiting(browser, site.url, color_scheme=scheme) as visitor:
        empty = [
            violations(settled(visitor, path), axe)
            for path in ("/", "/tasks", "/queues", "/dead-letters", "/schedules", "/operations")
        ]
        full = [violations(settled(visitor, path), axe) for path in paths(site)]
        page = visitor.go("/tasks?q=type:echo")
        page.get_by_role("button", name="Discard all matching").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        dialogs = [violations(page, axe)]
    assert [each for found in (empty, full, dialogs) for one in found for each in one] == []


def test_every_page_fits_a_phone(browser: Browser, sqlite_site: Site) -> None:
    with visiting(
        browser, sqlite_site.url, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    ) as visitor:
        for path in paths(sqlite_site):
            page = settled(visitor, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
