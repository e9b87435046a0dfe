"""A server in this process with a clock that stands still, and short words for what tests do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import httpx

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Outcome
from fairlead.core.identity import WorkerId
from fairlead.core.instant import span
from fairlead.core.settings import Settings
from fairlead.core.task import Failure, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.runtime.clock import ManualClock
from fairlead.server.app import build
from fairlead.server.auth.gate import Gate
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.protocol import Store
from tests.server.validating import ValidatingTransport

BOOM = Failure(type="Boom", message="it went boom", traceback="Traceback …\nBoom: it went boom")
NOBODY = "0" * 12 + "8" + "0" * 3 + "8" + "0" * 15
"""The id of no task."""


class Service:
    """A server, the engine behind it, and a client that calls it."""

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        server: ServerSettings | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.engine = AdminEngine(store, settings, clock=self.clock, observers=[self.metrics])
        self.state = ServerState(self.engine, server or ServerSettings(rate_limit=0), gate, self.metrics)
        # Every answer is held to what the OpenAPI document says of it.
        transport = ValidatingTransport(httpx.ASGITransport(build(self.state), raise_app_exceptions=True))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", timeout=30.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self.engine.close()

    def advance(self, seconds: float) -> None:
        self.clock.advance(span(seconds))

    async def get(self, path: str, status: int = 200, /, **query: Any) -> Any:
        return _checked(await self.client.get(path, params=query), status)

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return _checked(await self.client.post(path, json={} if body is None else body), status)

    async def delete(self, path: str, status: int = 200, /, **query: Any) -> Any:
        return _checked(await self.client.delete(path, params=query), status)

    async def submit(self, status: int = 201, /, **wish: Any) -> Any:
        """Submit a task; the answer."""
        return await self.post("/api/v1/tasks", {"task_type": "send_mail", **wish}, status)

    async def show(self, task_id: str, **query: Any) -> Any:
        return await self.get(f"/api/v1/tasks/{task_id}", **query)

    async def claim(self, limit: int = 1, queues: Sequence[str] = ("default",)) -> list[Task]:
        """Take tasks, as a worker would."""
        return await self.engine.claim(WorkerId("worker-1"), list(queues), limit=limit)

    async def settle(self, task: Task, outcome: Outcome) -> Task:
        (answer,) = await self.engine.settle([Settlement(task, outcome)])
        assert isinstance(answer, Task), answer
        return answer

    async def ended(self, outcome: Outcome, **wish: Any) -> str:
        """The id of a task that was submitted, claimed and settled."""
        submitted = await self.submit(**wish)
        (task,) = await self.claim()
        await self.settle(task, outcome)
        assert task.id == submitted["task_id"]
        return task.id


def _checked(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, (response.status_code, response.text)
    kind = "application/problem+json" if status >= 400 else "application/json"
    assert response.headers["content-type"] == kind, response.headers
    return response.json()
