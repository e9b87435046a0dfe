"""Queues over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import check_name
from fairlead.core.queues.queue import PurgeCount, QueueOptions, QueueSettings, changed, settings_in
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.engine.stats import QueueStats
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.settings import SettingShapes
from fairlead.wire.tasks import Name
from fairlead.wire.words import ByState

_SHAPES: Final = SettingShapes(
    QueueSettings,
    ("QueueOwnSettings", "A queue's own settings; null where the settings of the servers and workers apply."),
    ("QueueChange", "What to change of a queue; null removes its own setting, and what is left out stays as it is."),
    __name__,
)

if TYPE_CHECKING:
    QueueOwnSettings: TypeAlias = Struct
    QueueChange: TypeAlias = Struct
else:
    QueueOwnSettings = _SHAPES.own
    QueueChange = _SHAPES.change


class QueueShown(Struct, frozen=True, kw_only=True):
    """A queue: whether it is paused, how many tasks it has, and its own settings."""

    queue: str
    paused: bool
    unreadable: bool = False
    """Whether it is paused because its settings cannot be read: they were set aside, or are of a newer version."""
    states: ByState[int]
    """How many of its tasks are in each state."""
    running: dict[str, int]
    """How many of its tasks of each type are executing."""
    settings: QueueOwnSettings


class QueueList(Struct, frozen=True, kw_only=True):
    """The queues that have tasks or settings of their own, by name."""

    queues: list[QueueShown]
    paused_types: list[str]
    """The task types that are paused, in whatever queue."""


class PurgeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A purge cannot be undone, so it names the queue twice."""

    confirm: Name
    """The name of the queue again."""


class PurgeNoted(Struct, frozen=True, kw_only=True):
    """What a purge has removed."""

    queue: str
    scheduled: int
    """How many scheduled tasks were deleted."""
    queued: int
    """How many queued tasks were deleted."""
    complete: bool
    """Whether all tasks that waited when it began are deleted; if not, call again."""


class TypeNoted(Struct, frozen=True, kw_only=True):
    """A task type, and whether it is paused."""

    task_type: str
    paused: bool


def queue_shown(name: str, own: QueueSettings, stats: QueueStats | None = None) -> QueueShown:
    """A queue with these settings that stands like this."""
    counts = {} if stats is None else stats.states
    return QueueShown(
        queue=name,
        paused=own.paused,
        unreadable=stats is not None and stats.unreadable,
        states={state.value: counts.get(state, 0) for state in State},
        running={} if stats is None else stats.running,
        settings=_SHAPES.shown(own),
    )


def settings_of(shown: QueueShown) -> QueueSettings:
    """The settings of a queue that is shown like this."""
    own = changed(QueueSettings(), options_of(shown.settings))
    return replace(own, paused=shown.paused)


def options_of(said: QueueOwnSettings | QueueChange) -> QueueOptions:
    """What a request says of a queue, in the words of Python."""
    return cast(QueueOptions, _SHAPES.options(said))


def change_of(options: QueueOptions) -> dict[str, object]:
    """The request that says this of a queue."""
    return _SHAPES.request(options)


LIST_QUEUES: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/queues",
    summary="List the queues",
    role=Role.READ,
    answers={200: QueueList},
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/queues/{queue}",
    summary="Show a queue",
    role=Role.READ,
    answers={200: QueueShown},
    problems=(404,),
)
CHANGE: Final = Endpoint[Empty, QueueChange](
    method="PATCH",
    path="/api/v1/queues/{queue}",
    patient=True,
    summary="Change a queue",
    role=Role.ADMIN,
    body=QueueChange,
    answers={200: QueueShown},
    problems=(404, 409),
)
PAUSE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/queues/{queue}/pause",
    summary="Pause a queue",
    role=Role.ADMIN,
    answers={200: QueueShown},
    problems=(404,),
)
RESUME: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/queues/{queue}/resume",
    summary="Resume a queue",
    role=Role.ADMIN,
    answers={200: QueueShown},
    problems=(404,),
)
PURGE: Final = Endpoint[Empty, PurgeRequest](
    method="POST",
    path="/api/v1/queues/{queue}/purge",
    patient=True,
    summary="Purge a queue",
    role=Role.ADMIN,
    body=PurgeRequest,
    answers={200: PurgeNoted},
    problems=(404,),
)
PAUSE_TYPE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/task-types/{task_type}/pause",
    summary="Pause a task type",
    role=Role.ADMIN,
    answers={200: TypeNoted},
    problems=(404,),
)
RESUME_TYPE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/task-types/{task_type}/resume",
    summary="Resume a task type",
    role=Role.ADMIN,
    answers={200: TypeNoted},
    problems=(404,),
)


class RemoteQueues:
    """The queues behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name."""
        listed = await self._ask(LIST_QUEUES, QueueList)
        settings = {shown.queue: settings_of(shown) for shown in listed.queues}
        return {name: own for name, own in settings.items() if own != QueueSettings()}

    async def get(self, queue: str) -> QueueSettings:
        """The settings of one queue; one that nobody has changed has none of its own."""
        return settings_of(await self._ask(SHOW, QueueShown, queue=check_name("queue", queue)))

    async def paused_types(self) -> list[str]:
        """The task types that are paused, by name."""
        return (await self._ask(LIST_QUEUES, QueueList)).paused_types

    async def pause(self, queue: str) -> QueueSettings:
        """Pause a queue: its tasks wait until it is resumed; it still takes tasks, and running ones continue."""
        return settings_of(await self._ask(PAUSE, QueueShown, queue=check_name("queue", queue)))

    async def resume(self, queue: str) -> QueueSettings:
        """Resume a paused queue: its tasks are claimed again."""
        return settings_of(await self._ask(RESUME, QueueShown, queue=check_name("queue", queue)))

    async def change(self, queue: str, **options: Unpack[QueueOptions]) -> QueueSettings:
        """Change some settings of a queue and leave the others; raises InvalidSettings if one makes no sense."""
        changed(QueueSettings(), options)
        return settings_of(await self._ask(CHANGE, QueueShown, change_of(options), queue=check_name("queue", queue)))

    async def reset(self, queue: str) -> QueueSettings:
        """Remove a queue's own settings, except whether it is paused and which tenant it is bound to."""
        nothing = dict.fromkeys(settings_in(QueueSettings).keys() - {"tenant"})
        return await self.change(queue, **cast(QueueOptions, nothing))

    async def pause_type(self, task_type: str) -> None:
        """Pause a task type: its tasks wait, in every queue, until it is resumed; running ones continue."""
        await self._ask(PAUSE_TYPE, TypeNoted, task_type=check_name("task_type", task_type))

    async def resume_type(self, task_type: str) -> None:
        """Resume a paused task type: its tasks are claimed again."""
        await self._ask(RESUME_TYPE, TypeNoted, task_type=check_name("task_type", task_type))

    async def purge(self, queue: str, limit: int | None = None) -> PurgeCount:
        """Remove the tasks that wait in a queue, for as many requests as it takes; what runs goes on.

        With a limit it stops after the request that reaches it, so it may remove more.
        """
        done = PurgeCount(complete=False)
        while not done.complete and (limit is None or done.total < limit):
            noted = await self._ask(PURGE, PurgeNoted, {"confirm": queue}, queue=check_name("queue", queue))
            done = PurgeCount(
                scheduled=done.scheduled + noted.scheduled,
                queued=done.queued + noted.queued,
                complete=noted.complete,
            )
        return done
