"""A real server in this process, and apps and workers that reach it over HTTP only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlead.app.app import Fairlead
from fairlead.core.settings import Settings
from fairlead.core.task import State, Task
from fairlead.server.server import Binding, Server, open_server
from fairlead.server.settings import ServerSettings
from fairlead.storage.protocol import Store
from fairlead.worker.worker import Worker, WorkerSettings
from tests.worker.building import PATIENCE, SETTINGS, Crew, eventually


class Port(Crew):
    """A store, a server in front of it, and an app on the server."""

    def __init__(self, store: Store, settings: Settings = SETTINGS) -> None:
        super().__init__(settings, store)
        self.server: Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0
        self._apps: list[Fairlead] = []

    async def open(self) -> None:
        """Serve; the second time, at the same place as before."""
        self.server = await open_server(
            self.engine, Binding(port=self._port, grace_seconds=5.0), ServerSettings(rate_limit=0)
        )
        self._port = int(self.server.url.rpartition(":")[2])
        self._serving = asyncio.create_task(self.server.run())
        await eventually(lambda: self.server is not None and self.server._uvicorn.started, "the server")

    async def close(self) -> None:
        """Stop serving."""
        if self.server is not None and self._serving is not None:
            self.server.leave()
            await asyncio.wait_for(self._serving, PATIENCE)
            self.server = self._serving = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def app(self, key: str | None = None) -> Fairlead:
        """An app on the server."""
        app = Fairlead(self.url, settings=Settings(), api_key=key)
        self._apps.append(app)
        return app

    @asynccontextmanager
    async def hired(self, app: Fairlead, **settings: Any) -> AsyncIterator[Worker]:
        """A worker of the app that works, and leaves at the end."""
        worker = await app.worker(settings=WorkerSettings(**settings), keeper_process=False)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.leave()
            worker.leave()
            await asyncio.wait_for(running, PATIENCE)

    async def end(self) -> None:
        for app in self._apps:
            await app.close()
        await self.close()
        await self.store.close()

    async def until_state(self, task_id: str, state: State | Callable[[Task], bool]) -> Task:
        return await self.until(await self.engine.get(task_id), state)  # type: ignore[arg-type]
