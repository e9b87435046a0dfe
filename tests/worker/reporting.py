"""An app that reports to Sentry, in a module that an isolated process can import.

What would be sent is written to the folder that REPORTS names, an event a file.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from fairlead import Fairlead, Sentry


class Folder(Transport):
    """A transport that keeps everything here."""

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            kept = item.get_event() or item.get_transaction_event()
            if kept is not None:
                name = f"{kept.get('type', 'event')}-{uuid.uuid4()}.json"
                (Path(os.environ["REPORTS"]) / name).write_text(json.dumps(kept, default=str))


def start() -> None:
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=Folder, traces_sample_rate=1.0)


if "REPORTS" in os.environ:
    start()

app = Fairlead("memory://", middleware=[Sentry()])


def events(folder: Path, kind: str = "event") -> list[dict[str, Any]]:
    """What was sent."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*"))]


@app.task(max_retries=1)
async def on_the_loop() -> None:
    raise ValueError("no such order")


@app.task(max_retries=1)
def in_a_thread() -> None:
    raise ValueError("no such order")


@app.task(max_retries=1, isolate=True)
def isolated() -> None:
    raise ValueError("no such order")


@app.task(max_retries=3)
async def recovers() -> None:
    from fairlead import current_task

    if current_task().attempt < 3:
        raise ValueError("not yet")


@app.task(max_retries=0, timeout=0.1)
async def hangs() -> None:
    import asyncio

    await asyncio.sleep(3600)


@app.task(max_retries=0)
async def returns_an_object() -> object:
    return object()


@app.task(max_crashes=0, isolate=True)
def dies() -> None:
    os._exit(7)
