"""A queue that runs for ever holds no more memory than one that has just warmed up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc/self/status: Linux only")


def memory_over(tasks: int) -> list[tuple[int, int]]:
    """(tasks done, resident KiB) on the way through this many tasks, in a process of their own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.local.endless", str(tasks)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(ran.stdout)
    lines = [line.split() for line in ran.stdout.splitlines()]
    return [(int(done), int(kib)) for done, kib, *_ in lines]


def assert_flat(samples: list[tuple[int, int]], tasks: int) -> None:
    """Memory grows by less than a tenth after the first quarter."""
    warm = max(kib for done, kib in samples if done <= tasks / 4)
    most = max(kib for _, kib in samples)
    print(f"{tasks:,} tasks: {warm:,} KiB after the first quarter, {most:,} KiB at most ({most / warm - 1:+.1%})")
    assert samples[-1][0] >= tasks
    assert most < 1.1 * warm


@linux
@pytest.mark.slow
def test_memory_is_flat_over_sixty_thousand_tasks() -> None:
    assert_flat(memory_over(60_000), 60_000)


@linux
@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_memory_is_flat_over_a_million_tasks() -> None:
    assert_flat(memory_over(1_000_000), 1_000_000)
