"""An app at its default settings, whose tasks take some seconds."""

from __future__ import annotations

import asyncio

from fairlead import Fairlead

app = Fairlead()


@app.task
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)
