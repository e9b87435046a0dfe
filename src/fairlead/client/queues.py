"""Queues behind a server: what `engine.queues` does, over the API."""

from __future__ import annotations

from typing import Final, TypeVar, Unpack

import msgspec

from fairlead.client.problems import decoded
from fairlead.client.transport import Transport
from fairlead.core.identity import check_name
from fairlead.core.queue import QueueSettings
from fairlead.engine.purging import PurgeCount
from fairlead.engine.queues import QueueChanges
from fairlead.wire.queues import PurgeNoted, QueueList, QueueShown, TypeNoted, change_of, settings_of

T = TypeVar("T")

_PATIENCE: Final = 120.0
"""How long a request of a purge may take, in seconds."""

_encode: Final = msgspec.json.Encoder().encode


class Asking:
    """Asks a server, and raises what it answers as an error."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ask(self, method: str, path: str, kind: type[T], body: object = None, subject: str = "") -> T:
        """The body of the answer; `subject` is what the request is about."""
        encoded = None if body is None else _encode(body)
        reply = await self._transport.ask(method, path, encoded, patience=_PATIENCE)
        return decoded(reply, kind, self._transport.address, subject)


class RemoteQueues(Asking):
    """The queues behind a server."""

    async def all(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name."""
        listed = await self.ask("GET", "/api/v1/queues", QueueList)
        settings = {shown.queue: settings_of(shown) for shown in listed.queues}
        return {name: own for name, own in settings.items() if own != QueueSettings()}

    async def get(self, queue: str) -> QueueSettings:
        """The settings of one queue; one that nobody has changed has none of its own."""
        return settings_of(await self.ask("GET", _path(queue), QueueShown))

    async def paused_types(self) -> list[str]:
        """The task types that are paused, by name."""
        return (await self.ask("GET", "/api/v1/queues", QueueList)).paused_types

    async def pause(self, queue: str) -> QueueSettings:
        """Have a queue's tasks wait until it is resumed; it still takes tasks, and what runs goes on."""
        return settings_of(await self.ask("POST", f"{_path(queue)}/pause", QueueShown))

    async def resume(self, queue: str) -> QueueSettings:
        """Let a paused queue's tasks be claimed again."""
        return settings_of(await self.ask("POST", f"{_path(queue)}/resume", QueueShown))

    async def change(self, queue: str, **changes: Unpack[QueueChanges]) -> QueueSettings:
        """Change some settings of a queue and leave the others."""
        return settings_of(await self.ask("PATCH", _path(queue), QueueShown, change_of(changes)))

    async def reset(self, queue: str) -> QueueSettings:
        """Go back to the settings of all, but for whether the queue is paused."""
        nothing = QueueChanges(
            bound=None,
            order=None,
            priority=None,
            timeout=None,
            max_retries=None,
            max_crashes=None,
            backoff=None,
        )
        return await self.change(queue, **nothing)

    async def pause_type(self, task_type: str) -> None:
        """Have the tasks of a type wait, in whatever queue, until it is resumed; what runs goes on."""
        await self.ask("POST", f"{type_path(task_type)}/pause", TypeNoted)

    async def resume_type(self, task_type: str) -> None:
        """Let the tasks of a paused type be claimed again."""
        await self.ask("POST", f"{type_path(task_type)}/resume", TypeNoted)

    async def purge(self, queue: str, limit: int | None = None) -> PurgeCount:
        """Remove the tasks that wait in a queue, for as many requests as it takes; what runs goes on.

        With a limit it stops after the request that reaches it, so it may remove more.
        """
        done = PurgeCount(complete=False)
        while not done.complete and (limit is None or done.total < limit):
            noted = await self.ask("POST", f"{_path(queue)}/purge", PurgeNoted, {"confirm": queue})
            done = PurgeCount(
                scheduled=done.scheduled + noted.scheduled,
                queued=done.queued + noted.queued,
                complete=noted.complete,
            )
        return done


def _path(queue: str) -> str:
    return f"/api/v1/queues/{check_name('queue', queue)}"


def type_path(task_type: str) -> str:
    """Where a task type is."""
    return f"/api/v1/task-types/{check_name('task_type', task_type)}"
