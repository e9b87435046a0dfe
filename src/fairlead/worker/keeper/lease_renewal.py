"""Beating: what a keeper does with the leases that it is told of, in a process or a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.engine.inline import run_inline
from fairlead.engine.leases import StoreLeases
from fairlead.storage.opening import open_store
from fairlead.storage.values import Beat, Pulse
from fairlead.worker.keeping import forget

LOOK_INTERVAL: Final = 1.0
"""How often, in seconds, a keeper looks whether cancel was asked."""

Tell = Callable[[Mapping[TaskId, Pulse], int], None]
"""Told of leases that are lost or should stop, and how many heartbeats did not arrive."""


class Leases(Protocol):
    """What keeps leases, of an engine or of a server; its coroutines must not suspend."""

    @property
    def settings(self) -> Settings: ...

    async def follow_clock(self) -> None: ...

    async def heartbeat(self, beats: Sequence[Beat], /) -> list[Pulse]: ...

    async def look(self, beats: Sequence[Beat], /) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything."""
        ...


class Remote(Struct, frozen=True):
    """A worker of a server."""

    worker: WorkerId
    key: str | None

    def __repr__(self) -> str:
        return f"Remote({self.worker!r})"


class Brief(Struct, frozen=True):
    """What a keeper process needs to open what it renews leases with."""

    url: str
    settings: Settings
    remote: Remote | None = None
    """What it takes beside the URL, if that is a server's."""


def open_leases(packed: bytes) -> Leases:
    """Where leases are renewed, by a packed brief: the store itself, or a server."""
    brief = msgspec.msgpack.decode(packed, type=Brief)
    if brief.remote is None:
        return StoreLeases(run_inline(open_store(brief.url, blocking=True)), brief.settings)
    from fairlead.client.leases import RemoteLeases
    from fairlead.client.transport import Address

    return RemoteLeases(Address(brief.url, brief.remote.key), brief.remote.worker, brief.settings)


class Beater:
    """The beating itself. What is held may change meanwhile, from another thread too."""

    def __init__(self, leases: Leases, held: dict[TaskId, LeaseToken]) -> None:
        self._leases = leases
        self._held = held
        self._asked: set[LeaseToken] = set()
        """Those of which it was told that they should stop."""

    def beat(self) -> dict[TaskId, Pulse]:
        """Renew every lease; those that are lost or should stop."""
        beats = self._beats()
        if not beats:
            return {}
        run_inline(self._leases.follow_clock())
        pulses = run_inline(self._leases.heartbeat(beats))
        lost = {beat.id: beat.token for beat, pulse in zip(beats, pulses, strict=True) if pulse is Pulse.LOST}
        forget(self._held, lost)
        return dict.fromkeys(lost, Pulse.LOST) | self._unsaid(beats, pulses)

    def look(self) -> dict[TaskId, Pulse]:
        """Those that should stop, without renewing any: a cancel need not wait for the next heartbeat."""
        beats = self._beats()
        return self._unsaid(beats, run_inline(self._leases.look(beats))) if beats else {}

    def _beats(self) -> list[Beat]:
        return [Beat(task_id, token) for task_id, token in list(self._held.items())]

    def _unsaid(self, beats: Sequence[Beat], pulses: Sequence[Pulse]) -> dict[TaskId, Pulse]:
        """Those that should stop, each told of once."""
        asked = {beat.token: beat.id for beat, pulse in zip(beats, pulses, strict=True) if pulse is Pulse.CANCEL}
        fresh = {task_id: Pulse.CANCEL for token, task_id in asked.items() if token not in self._asked}
        self._asked.intersection_update(beat.token for beat in beats)
        self._asked.update(asked)
        return fresh


def moment_of(settings: Settings) -> float:
    """How long, in seconds, a lease may be held before anyone looks after it."""
    return min(LOOK_INTERVAL, settings.heartbeat / SECOND / 2)


def keep(beater: Beater, settings: Settings, tell: Tell, pause: Callable[[float], bool]) -> None:
    """Beat and look until `pause`, which sleeps for so many seconds, says that it is over.

    The first beat comes at once: what is held already may have been held for long.
    """
    interval, moment = settings.heartbeat / SECOND, moment_of(settings)
    next_beat = time.monotonic()
    over = False
    while not over:
        beats = time.monotonic() >= next_beat
        try:
            pulses = beater.beat() if beats else beater.look()
        except StoreError:
            # A store that fails is tried again at once: a lease is worth three beats.
            if beats:
                tell({}, 1)
        else:
            if beats:
                next_beat = time.monotonic() + interval
            if pulses:
                tell(pulses, 0)
        over = pause(moment)
