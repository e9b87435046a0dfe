"""The pictures of the documentation tell nothing of the machine that takes them."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.dashboard import scene
from tests.dashboard.built import ROOT
from tests.dashboard.site import PATIENCE, Site

pytestmark = [pytest.mark.slow]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with scene.opened(tmp_path) as site:
        yield site


def test_what_the_pictures_show_names_no_path_and_no_host(site: Site, tmp_path: Path) -> None:
    paths = scene.stage(site)
    task = paths["task"].rpartition("/")[2]
    shown = {
        path: httpx.get(f"{site.url}/api/v1/{path}", timeout=PATIENCE).raise_for_status().text
        for path in (
            f"tasks/{task}",
            f"tasks/{task}/explain",
            "tasks",
            "dlq",
            "dlq/groups",
            "workers",
            "operations",
            "schedules",
        )
    }

    assert 'File \\"shop.py\\"' in shown[f"tasks/{task}"]
    for secret in (str(ROOT), str(Path.home()), str(tmp_path), f'"{platform.node()}', getpass.getuser() + "@"):
        assert [path for path, text in shown.items() if secret in text] == [], secret


def test_workers_go_by_the_names_of_their_roles(site: Site) -> None:
    workers = scene.workers_of(site)

    assert sorted(worker["host"] for worker in workers) == list(scene.HOSTS)
    assert [worker for worker in workers if not worker["worker_id"].startswith(worker["host"])] == []
