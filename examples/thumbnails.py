"""Work of three kinds: quick on the loop, blocking in a thread, dangerous in a process of its own.

fairlead worker thumbnails:app --capabilities gpu
"""

from __future__ import annotations

import hashlib
import time
from datetime import datetime

import msgspec

from fairlead import Backoff, Fairlead, Retry, current_task

app = Fairlead("sqlite:///tasks.db")


class Picture(msgspec.Struct):
    name: str
    width: int
    height: int
    taken: datetime | None = None


@app.task(priority="critical", timeout=5)
async def register(picture: Picture) -> str:
    """Quick and asynchronous: runs on the worker's event loop."""
    task = await shrink.options(idempotency_key=f"shrink-{picture.name}").submit(picture, width=320)
    return task.id


@app.task(backoff=Backoff(initial=5, factor=3.0), max_retries=8)
def shrink(picture: Picture, *, width: int) -> Picture:
    """Blocking: runs in a thread, says how far it is, and stops when it is asked to."""
    context = current_task()
    for percent in range(0, 100, 25):
        if context.cancel_asked:
            break
        context.progress(percent, f"{picture.name} to {width} pixels")
        time.sleep(0.01)
    return Picture(picture.name, width, picture.height * width // picture.width, picture.taken)


@app.task(isolate=True, memory_limit=512 << 20, timeout=60, requires={"gpu"})
def classify(picture: Picture) -> str:
    """A library that may crash: runs in a process of its own, which can be killed."""
    if picture.width == 0:
        raise Retry("the picture is still being written", after=10)
    return hashlib.sha256(picture.name.encode()).hexdigest()[:8]
