"""A worker in a test: it calls the server as a worker in any language would."""

from __future__ import annotations

from typing import Any, Self

from tests.server.serving import Service


class Hand:
    """A registered worker."""

    def __init__(self, service: Service, registered: dict[str, Any]) -> None:
        self.service = service
        self.registered = registered

    @classmethod
    async def hired(cls, service: Service, **wish: Any) -> Self:
        return cls(service, await service.post("/internal/workers/register", wish, 201))

    @property
    def id(self) -> str:
        return str(self.registered["worker_id"])

    async def call(self, name: str, body: Any = None, status: int = 200) -> Any:
        return await self.service.post(f"/internal/workers/{self.id}/{name}", body, status)

    async def poll(self, capacity: int = 1, **wish: Any) -> list[dict[str, Any]]:
        """The tasks that it gets."""
        answer = await self.call("poll", {"available_capacity": capacity, **wish})
        tasks: list[dict[str, Any]] = answer["tasks"]
        return tasks

    async def poll_refused(self) -> Any:
        """The problem that it meets, being unknown."""
        return await self.call("poll", {}, 404)

    async def take(self) -> dict[str, Any]:
        """The one task that there is for it."""
        (task,) = await self.poll()
        return task

    async def result(self, task: dict[str, Any], outcome: str = "completed", status: int = 200, /, **more: Any) -> Any:
        return await self.call("result", {**held(task), "status": outcome, **more}, status)

    async def heartbeat(self, *tasks: dict[str, Any], **more: Any) -> Any:
        return await self.call("heartbeat", {"running": [held(task) for task in tasks], **more})


def held(task: dict[str, Any]) -> dict[str, Any]:
    """What names an attempt."""
    return {"task_id": task["task_id"], "lease": task["lease"]}
