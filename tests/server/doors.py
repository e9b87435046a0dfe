"""A server with a gate of its own, on a memory store and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.types import Message, Scope

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring, NewKey
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.server.app import build
from fairlead.server.auth.credentials import FRESH, STALE
from fairlead.server.auth.gate import Gate
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Record
from tests.server.validating import check_answer

HOST = "127.0.0.1:8420"
TASK = {"task_type": "echo"}
UNLIMITED = ServerSettings(rate_limit=0)


class CountingStore(MemoryStore):
    """Counts how often it is asked for keys; can be out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.scans = 0
        self.session_scans = 0
        self.broken: Exception | None = None

    async def scan(self, kind: str) -> list[Record]:
        self.scans += kind == "key"
        self.session_scans += kind == "session"
        # Whoever comes in the meantime must find that someone is asking already.
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        return await super().scan(kind)


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    names: list[str]
    """The names of its headers, as often as they were said."""
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def cookie(self) -> str:
        """The cookie it sets, as a browser would send it back."""
        return self.headers["set-cookie"].partition(";")[0]


class Doors:
    """A server, and callers of all kinds."""

    def __init__(
        self,
        settings: ServerSettings = UNLIMITED,
        *,
        store: CountingStore | None = None,
        keyless: bool = True,
        hosts: Collection[str] | None = ("127.0.0.1",),
    ) -> None:
        self.clock = ManualClock()
        self.store = store or CountingStore()
        self.engine = AdminEngine(self.store, clock=self.clock)
        self.keyring = Keyring(self.engine)
        self.gate = Gate(self.keyring, settings, keyless=keyless, hosts=hosts)
        self.state = ServerState(self.engine, settings, self.gate)
        self._app = build(self.state)

    async def key(self, *roles: Role, name: str = "test", **options: Any) -> NewKey:
        return await self.keyring.create(name, roles or (Role.ADMIN,), **options)

    def grow_stale(self) -> None:
        """Let so much time pass that the next caller waits until the keys are read again."""
        self.clock.advance(STALE)

    def grow_old(self) -> None:
        """Let so much time pass that keys are read again, but not so much that anybody waits for it."""
        self.clock.advance(FRESH)

    async def call(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        json: object = None,
        scheme: str = "http",
        root_path: str = "",
        **headers: str,
    ) -> Said:
        """Call it; the path may have a query, and `headers` have `_` for `-`."""
        path, _, query = path.partition("?")
        given = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        body = b"" if json is None else msgspec.json.encode(json)
        if json is not None:
            given |= {"content-type": "application/json", "content-length": str(len(body))}
        scope = _scope("http", path, given) | {"method": method, "scheme": scheme, "root_path": root_path}
        scope |= {"query_string": query.encode()}
        if root_path:
            scope |= {"path": f"{root_path}{path}"}
        return await self.ask(scope, body)

    async def ask(self, scope: Scope, body: bytes = b"") -> Said:
        """Have the application answer; of a stream only its head is waited for."""
        started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        chunks: list[bytes] = []
        arrived = asyncio.Queue[Message]()
        arrived.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.set_result(message)
            else:
                chunks.append(message.get("body", b""))

        answering = asyncio.ensure_future(self._app(scope, arrived.get, send))
        waited: list[asyncio.Future[Any]] = [answering, started]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        head = started.result()
        headers = {name.decode(): value.decode() for name, value in head["headers"]}
        if "content-length" not in headers:
            answering.cancel()
            await asyncio.wait([answering])
        else:
            await answering
            path = scope["path"].removeprefix(scope["root_path"])
            check_answer(scope["method"], path, head["status"], headers.get("content-type", ""), b"".join(chunks))
        names = [name.decode() for name, _ in head["headers"]]
        return Said(head["status"], headers, names, b"".join(chunks))

    async def submit(self, key: str | None = None, **headers: str) -> Said:
        return await self.call("POST", "/api/v1/tasks", key=key, json=TASK, **headers)

    async def log_in(self, key: str, **options: Any) -> Said:
        return await self.call("POST", "/api/v1/session", json={"key": key}, **options)


def websocket(**headers: str) -> Scope:
    """The scope of a WebSocket that is being opened."""
    given = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return _scope("websocket", "/ws", given) | {"scheme": "ws"}


def _scope(kind: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": kind,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "root_path": "",
    }
