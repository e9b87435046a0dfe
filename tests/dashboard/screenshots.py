"""Pictures of every page, light and dark, for the documentation: `make screenshots`."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.dashboard.built import ROOT
from tests.dashboard.chromium import binary_or_skip
from tests.dashboard.site import Site, Visitor, visiting

IMAGES: Final = ROOT / "docs" / "images"
PRIORITIES: Final = ("critical", "high", "medium", "low")
PLAYED: Final = 180.0
"""How long work goes on before the pictures are taken, in seconds."""


def stage(site: Site) -> dict[str, str]:
    """A scene with something on every page; the address of each picture."""
    site.submit_many(
        [
            {"task_type": "echo", "priority": PRIORITIES[number % 4], "parameters": {"message": {"order": number}}}
            for number in range(60)
        ]
    )
    site.submit_many(
        [
            {"task_type": "resize_image", "queue": "media", "priority": PRIORITIES[number % 4], "tags": ["batch-7"]}
            for number in range(240)
        ]
    )
    for number in range(12):
        message = f"connection to 10.0.4.{number} timed out after {number * 7 + 30} s"
        site.submit("fail", parameters={"message": message}, max_retries=0)
    for number in range(4):
        site.submit("fail", parameters={"message": f"user {number + 400} has no address"}, max_retries=0)
    dead = site.submit("fail", parameters={"message": "card was declined", "retriable": True}, max_retries=0)
    site.submit("sleep", parameters={"seconds": 900}, priority="high")
    site.submit("echo", delay_seconds=5400, parameters={"message": "later"})
    for name, cron in (("nightly-report", "0 3 * * *"), ("refresh-cache", "every 30 minutes")):
        site.ask("POST", "/api/v1/schedules", {
            "name": name, "cron": cron, "timezone": "Europe/Berlin", "task": {"task_type": "echo"},
        })  # fmt: skip
    site.until(lambda: site.counts()["dead_letter"] >= 17, "the dead letters")
    site.ask("POST", "/api/v1/operations", {
        "action": "replay", "query": "state:dead_letter error:address", "canary": 2,
    })  # fmt: skip
    return {
        "overview": "/",
        "tasks": "/tasks",
        "task": f"/tasks/{dead}",
        "dead-letters": "/dead-letters",
        "queues": "/queues",
        "queue": "/queues/media",
        "schedules": "/schedules",
        "schedule": "/schedules/nightly-report",
        "workers": "/workers",
        "operations": "/operations",
        "try-it": "/try",
    }


def play(site: Site) -> None:
    """A few minutes of work in waves, so that the charts have something to show."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < PLAYED:
        wave = 10 + round(15 * (1 + math.sin(passed / 12)))
        site.submit_many(
            [
                {
                    "task_type": "sleep",
                    "priority": PRIORITIES[number % 4],
                    "parameters": {"seconds": 1.0 + number % 3},
                    "max_retries": 0,
                }
                for number in range(wave)
            ]
        )
        if round(passed) % 10 == 0:
            site.submit("fail", parameters={"message": "card was declined"}, max_retries=0)
        time.sleep(1.0)


def picture(visitor: Visitor, name: str, path: str, scheme: str) -> None:
    page = visitor.go(path)
    if name == "try-it":
        page.get_by_label("each sleeps").fill("2")
        page.get_by_role("button", name="Submit 200 tasks").click()
        page.get_by_role("region", name="Running").get_by_role("link").first.wait_for()
    # Charts draw themselves, and lists fill, in a moment.
    page.wait_for_timeout(1_500)
    page.screenshot(path=IMAGES / f"dashboard-{name}-{scheme}.png", animations="disabled")
    print(f"docs/images/dashboard-{name}-{scheme}.png")


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary_or_skip(), args=["--no-sandbox"])
        site = Site(f"sqlite:///{folder}/tasks.db", Path(folder))
        try:
            site.start()
            play(site)
            paths = stage(site)
            for scheme in ("light", "dark"):
                with visiting(browser, site.url, color_scheme=scheme) as visitor:
                    for name, path in paths.items():
                        picture(visitor, name, path, scheme)
        finally:
            site.stop()
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
