"""Everything without a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.site import Site, Visitor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_pages_are_reached_searched_and_acted_on_by_keys_alone(site: Site, visitor: Visitor) -> None:
    ids = site.submit_many([{"task_type": "letter", "queue": "mail"} for _ in range(3)])
    page = visitor.go("/")
    for key, path in (("q", "/queues"), ("w", "/workers"), ("s", "/schedules"), ("d", "/dead-letters"),
                      ("a", "/operations"), ("u", "/quarantine"), ("y", "/try"), ("o", "/"),
                      ("t", "/tasks")):  # fmt: skip
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(f"{site.url}{path}")

    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("type:letter g t ?")
    expect(page.get_by_role("searchbox")).to_have_value("type:letter g t ?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("searchbox").press("Control+A")
    page.keyboard.type("type:letter")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(4)

    page.get_by_role("searchbox").evaluate("element => element.blur()")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator(f"[data-task='{ids[1]}']").get_by_role("checkbox")).to_be_checked()

    button = page.get_by_role("button", name="Cancel 1 selected")
    for _ in range(60):
        if button.evaluate("element => element === document.activeElement"):
            break
        page.keyboard.press("Shift+Tab")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Enter")
    site.until(lambda: site.task(ids[1])["status"] == "cancelled", "a cancelled task")


def test_help_and_theme_are_keys_too(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    page = sqlite_visitor.go("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Search tasks")
    page.keyboard.press("Escape")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_first_tab_skips_to_the_page(sqlite_site: Site, sqlite_visitor: Visitor) -> None:
    page = sqlite_visitor.go("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
