"""How soon the dashboard is seen, with a browser and a server on the same machine and a backlog in the store.

    python -m bench.painting --store sqlite --backlog 1000000

Chromium must be on PATH, or named by TEST_CHROMIUM; the dashboard must be built.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from bench.measuring import Figure, summed
from bench.queueing import fill, fresh_url
from bench.report import save, show
from bench.serving import served
from fairlead.admin.engine import AdminEngine
from fairlead.storage.open import open_store
from tests.dashboard.chromium import binary_or_skip

TARGET: Final = 1000.0
"""The longest that a first paint may take, in milliseconds."""
PAGES: Final = {
    "overview": ("/", "section[aria-label=Verdict]"),
    "tasks": ("/tasks", "tbody tr"),
    "queues": ("/queues", "tbody tr"),
}
_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


async def stock(url: str, backlog: int) -> None:
    engine = AdminEngine(await open_store(url))
    try:
        await fill(engine, backlog)
    finally:
        await engine.close()


def look(browser: Browser, url: str, awaited: str) -> tuple[float, float]:
    """Milliseconds until a page paints, and until it shows what was asked for; in a browser that has kept nothing."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url, wait_until="commit")
        page.wait_for_selector(awaited, timeout=60_000)
        filled = float(page.evaluate("performance.now()"))
        page.wait_for_function(_PAINT)
        return float(page.evaluate(_PAINT)), filled
    finally:
        context.close()


def measure(store: str, backlog: int, repeats: int) -> list[Figure]:
    figures: list[Figure] = []
    with fresh_url(store) as url:
        asyncio.run(stock(url, backlog))
        with served(url) as (server, _), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=binary_or_skip(), args=["--no-sandbox"])
            for name, (path, awaited) in PAGES.items():
                runs = [look(browser, f"{server}{path}", awaited) for _ in range(repeats)]
                work = f"{name}, {backlog:,} waiting"
                paints, fills = zip(*runs, strict=True)
                first = f"{work}: first paint"
                figures.append(summed(store, first, "ms", list(paints), target=TARGET, at_most=True))
                figures.append(summed(store, f"{work}: filled", "ms", list(fills)))
            browser.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="append", help="sqlite, or the URL of a server that may be filled")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("build/painting.json"))
    arguments = parser.parse_args()
    stores = arguments.store or ["sqlite"]
    figures = [each for store in stores for each in measure(store, arguments.backlog, arguments.repeats)]
    show(figures)
    save(figures, arguments.output)


if __name__ == "__main__":
    main()
