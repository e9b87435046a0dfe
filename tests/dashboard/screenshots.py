"""Take the pictures of the documentation: `make screenshots`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.dashboard import scene
from tests.dashboard.built import ROOT
from tests.dashboard.chromium import binary_or_skip
from tests.dashboard.site import Visitor, visiting

IMAGES: Final = ROOT / "docs" / "images"
PLAYED: Final = 180.0
"""How long work goes on before the pictures are taken, in seconds."""


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
        try:
            with scene.opened(Path(folder)) as site:
                scene.play(site, PLAYED)
                paths = scene.stage(site)
                for scheme in ("light", "dark"):
                    with visiting(browser, site.url, color_scheme=scheme) as visitor:
                        for name, path in paths.items():
                            picture(visitor, name, path, scheme)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
