"""The examples run, as their own words say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import thumbnails
from examples.thumbnails import Picture
from fairlead import State

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_greetings_greets(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
    environment["PYTHONPATH"] = str(ROOT / "examples")
    worker = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "worker", "greetings:app"], cwd=tmp_path, env=environment
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(ROOT / "examples" / "greetings.py"), "Ada", "Grace"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert (ran.stdout, ran.stderr) == ("hello Ada\nhello Grace\n", "")
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


async def test_thumbnails_can_be_rehearsed() -> None:
    picture = Picture("a.jpg", 1920, 1080)
    async with thumbnails.app.testing() as rehearsal:
        first, again = await thumbnails.register.submit(picture), await thumbnails.register.submit(picture)
        seen = await thumbnails.classify.submit(picture)
        early = await thumbnails.classify.submit(Picture("b.jpg", 0, 0))
        assert await rehearsal.run() == 5
        assert await first.result() == await again.result()
        assert len(await seen.result()) == 8
        assert (await early.refresh()).status is State.SCHEDULED
