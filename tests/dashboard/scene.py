"""A shop at work, with something on every page of the dashboard: what the pictures of the documentation show."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.dashboard import shop
from tests.dashboard.site import PATIENCE, Site, environment

HOSTS: Final = ("server-1", "worker-1", "worker-2")
PRIORITIES: Final = ("critical", "high", "medium", "low")

_RELATIVE: Final = (sys.executable, "-c", 'import runpy; runpy.run_path("shop.py", run_name="__main__")')
"""Runs the shop from the working folder, so that a traceback names no other one."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Site]:
    """A server and two workers, each by the name of its role, with an empty store in this folder."""
    shutil.copy(shop.__file__, folder)
    server, *workers = HOSTS
    site = Site(f"sqlite:///{folder}/tasks.db", folder, "--concurrency", "30", program=(*_RELATIVE, server))
    started: list[subprocess.Popen[bytes]] = []
    try:
        site.start()
        for host, slots, queues in zip(workers, (40, 10), (("default",), ("default", "media")), strict=True):
            command = (*_RELATIVE, host, "work", site.store, str(slots), *queues)
            started.append(subprocess.Popen(command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL))
        site.until(lambda: len(workers_of(site)) == len(HOSTS), "three workers")
        yield site
    finally:
        for worker in started:
            worker.kill()
            worker.wait(PATIENCE)
        site.stop()


def workers_of(site: Site) -> list[dict[str, Any]]:
    """The workers that the dashboard shows."""
    workers: list[dict[str, Any]] = site.ask("GET", "/api/v1/workers")["workers"]
    return workers


def stage(site: Site) -> dict[str, str]:
    """Have something on every page; the address of each picture."""
    site.submit_many([_charge(number) for number in range(60)])
    site.submit_many(
        [
            {
                "task_type": "resize_image",
                "queue": "media",
                "priority": PRIORITIES[number % 4],
                "parameters": {"width": 320, "seconds": 3},
                "tags": ["batch-7"],
            }
            for number in range(240)
        ]
    )
    failing = [
        *_fail(site, "fetch_rates", [{"after": number * 7 + 30} for number in range(12)]),
        *_fail(site, "send_receipt", [{"customer": number + 400} for number in range(4)]),
        *_fail(site, "charge_card", [{"order": 1815, "seconds": 0, "declined": True}]),
    ]
    site.submit("sleep", parameters={"seconds": 900}, priority="high")
    site.submit("charge_card", delay_seconds=5400, parameters={"order": 1816})
    for name, cron in (("nightly-report", "0 3 * * *"), ("refresh-cache", "every 30 minutes")):
        site.ask("POST", "/api/v1/schedules", {
            "name": name, "cron": cron, "timezone": "Europe/Berlin", "task": {"task_type": "echo"},
        })  # fmt: skip
    site.until(lambda: all(site.task(each)["status"] == "dead_letter" for each in failing), "the dead letters")
    site.ask("POST", "/api/v1/operations", {
        "action": "replay", "query": "state:dead_letter error:address", "canary": 2,
    })  # fmt: skip
    return {
        "overview": "/",
        "tasks": "/tasks",
        "task": f"/tasks/{failing[-1]}",
        "dead-letters": "/dead-letters",
        "queues": "/queues",
        "queue": "/queues/media",
        "schedules": "/schedules",
        "schedule": "/schedules/nightly-report",
        "workers": "/workers",
        "operations": "/operations",
        "try-it": "/try",
    }


def play(site: Site, seconds: float) -> None:
    """Work in waves, so that the charts have something to show."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        wave = 10 + round(15 * (1 + math.sin(passed / 12)))
        site.submit_many([_charge(number) for number in range(wave)])
        if round(passed) % 10 == 0:
            _fail(site, "charge_card", [{"order": 1000 + round(passed), "seconds": 0, "declined": True}])
        time.sleep(1.0)


def _charge(number: int) -> dict[str, Any]:
    return {
        "task_type": "charge_card",
        "priority": PRIORITIES[number % 4],
        "parameters": {"order": 1000 + number, "seconds": 1.0 + number % 3},
        "max_retries": 0,
    }


def _fail(site: Site, task_type: str, calls: Sequence[dict[str, Any]]) -> list[str]:
    return [site.submit(task_type, parameters=call, max_retries=0) for call in calls]
