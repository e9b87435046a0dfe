"""A browser, and servers for it to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.dashboard.built import assets_or_skip
from tests.dashboard.chromium import binary_or_skip
from tests.dashboard.site import Site, Visitor, visiting
from tests.servers import redis

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of one file: as long as it is open an event loop runs, in which no other could."""
    binary = binary_or_skip()
    with sync_playwright() as playwright:
        # Tests may run as root, for whom there is no sandbox, and in containers, whose /dev/shm is small.
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisServer]:
    yield from redis.started_single()


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Iterator[Site]:
    """A server on an empty SQLite store."""
    assets_or_skip()
    yield from _running(Site(f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path))


@pytest.fixture(params=["sqlite", "redis"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A server on an empty store of both kinds."""
    assets_or_skip()
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    if request.param == "redis":
        server: redis.RedisServer = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        url = server.url()
    yield from _running(Site(url, tmp_path))


def _running(site: Site) -> Iterator[Site]:
    try:
        site.start()
        yield site
    finally:
        site.stop()


@pytest.fixture
def visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Somebody who looks at `site`."""
    with visiting(browser, site.url) as visitor:
        yield visitor


@pytest.fixture
def sqlite_visitor(browser: Browser, sqlite_site: Site) -> Iterator[Visitor]:
    """Somebody who looks at `sqlite_site`."""
    with visiting(browser, sqlite_site.url) as visitor:
        yield visitor
