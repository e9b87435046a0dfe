"""Traces where nobody traces."""

from __future__ import annotations

import subprocess
import sys

from fairlead.engine.runtime import telemetry
from fairlead.worker.spans import Traces, adopt, carried
from tests.engine.building import Bench

PROGRAM = """
import asyncio, sys
from fairlead import Fairlead

app = Fairlead("memory://")

@app.task
async def nothing() -> None: ...

async def main() -> None:
    async with app.testing() as rehearsal:
        task = await nothing.submit()
        await rehearsal.run()
        await task.result()

asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "structlog", "prometheus_client", "rich"))])
"""


def test_nothing_is_imported_for_who_does_not_trace() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "[]\n"


async def test_the_api_alone_traces_nothing() -> None:
    import opentelemetry.trace  # noqa: F401

    assert not telemetry.active()
    bench = Bench()
    task = await bench.executing()
    assert task.spec.trace is None
    traces = Traces()
    traces.begin(task)
    traces.end(task, None)
    traces.settled(task, None, None)
    adopt("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    assert carried() is None
