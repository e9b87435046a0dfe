"""Damaging tasks in Redis."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.storage.redis.keys import Keys
from fairlead.testing.vandalism import Change, Part
from tests.servers.redis import RedisServer


class ServerVandal:
    """Damages tasks on servers, which keep a task's head, spec and status as one value."""

    def __init__(self, servers: Sequence[RedisServer], prefix: str) -> None:
        self._servers = servers
        self._keys = Keys(prefix)

    async def __call__(self, task_id: TaskId, part: Part, change: Change, *, tidy: bool = False) -> None:
        key = self._keys.base(slot_of_id(task_id)) + b"t" + bytes.fromhex(task_id)
        for server in self._servers:
            if server.ask("EXISTS", key) == 1:
                server.ask("SET", key, _changed(server.ask("GET", key), part, change, tidy=tidy))

    def mended(self, parts: dict[str, bytes], part: Part, change: Change) -> dict[str, bytes]:
        return {"value": _changed(parts["value"], part, change, tidy=False)}


def _changed(value: bytes, part: Part, change: Change, *, tidy: bool) -> bytes:
    """A value with its spec or status changed; a tidy change has the head say where the status is then."""
    at = int.from_bytes(value[2:6], "big")
    start = 15 + _key_size(value)
    spec, status = value[start:at], value[at:]
    if part == "status":
        return value[:at] + change(status)
    changed = change(spec)
    where = at + len(changed) - len(spec) if tidy else at
    return value[:2] + where.to_bytes(4, "big") + value[6:start] + changed + status


def _key_size(value: bytes) -> int:
    """The bytes of the keys in a head."""
    first = value[15]
    if first == 0xC0:
        return 1
    if first == 0x92:
        one = _text_size(value, 16)
        return 1 + one + _text_size(value, 16 + one)
    return _text_size(value, 15)


def _text_size(value: bytes, at: int) -> int:
    return 1 + (value[at] & 0x1F) if value[at] < 0xC0 else 2 + value[at + 1]
