"""What can happen to a task once it is stored.

The outcomes are said by the holder of the task's lease; the others by anyone. Being claimed is not among them: it is
the one change that a store makes by itself, because it must choose and take in one step.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from msgspec import Struct

from fairlead.core.instant import AT_ONCE, Instant, Span
from fairlead.core.task import Failure, Priority


class Completed(Struct, frozen=True, tag=True):
    """The attempt succeeded."""

    name: ClassVar[str] = "complete"
    result: bytes | None = None


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """The attempt failed."""

    name: ClassVar[str] = "fail"
    failure: Failure
    retriable: bool = True
    after: Span | None = None
    """When to retry, instead of what the backoff says."""
    names: tuple[str, ...] = ()
    """What the error goes by beside its type, for retry rules: its name with its module, and those it derives from."""


class TimedOut(Struct, frozen=True, tag=True):
    """The attempt took longer than its timeout and was stopped."""

    name: ClassVar[str] = "time out"


class Crashed(Struct, frozen=True, tag=True):
    """The attempt took its own process down: it spends the crash budget, not the retries."""

    name: ClassVar[str] = "crash"
    failure: Failure


class HandedBack(Struct, frozen=True, tag=True):
    """The worker gives the task back without having tried it to the end; no retry is spent."""

    name: ClassVar[str] = "hand back"
    after: Span = 0
    reset_retries: bool = False
    """Whether its retries and its last error are forgotten. Only who operates the queue may decide so: no worker can
    say it over HTTP, or a task would never use up its retries."""


class Returned(Struct, frozen=True, tag=True):
    """The claim is undone before anybody saw the task: it waits as if it had never been taken."""

    name: ClassVar[str] = "return"


class Expired(Struct, frozen=True, tag=True):
    """A task was claimed that is not to be started any more; nobody has seen it."""

    name: ClassVar[str] = "expire"


class CancelConfirmed(Struct, frozen=True, tag=True):
    """The worker stopped the attempt because cancel was asked."""

    name: ClassVar[str] = "confirm cancel"


class AlarmRang(Struct, frozen=True, tag=True):
    """The moment in the task's alarm has come."""

    name: ClassVar[str] = "alarm"

    watched_from: Instant = AT_ONCE
    """Since when the clock has been watched that says so: an attempt that is older may have lived through a step."""


class CancelAsked(Struct, frozen=True, tag=True):
    """Someone wants the task not to run, or to stop."""

    name: ClassVar[str] = "cancel"


class Replayed(Struct, frozen=True, kw_only=True, tag=True):
    """Someone wants an ended task to be queued again."""

    name: ClassVar[str] = "replay"
    reset_retries: bool = True
    priority: Priority | None = None


class Prioritized(Struct, frozen=True, tag=True):
    """Someone wants a task that waits to be more urgent, or less; its wait goes on."""

    name: ClassVar[str] = "prioritize"
    priority: Priority


class Discarded(Struct, frozen=True, tag=True):
    """Someone wants an ended task to be removed."""

    name: ClassVar[str] = "discard"


class Purged(Struct, frozen=True, tag=True):
    """Someone wants a task that waits to be removed, as part of emptying its queue."""

    name: ClassVar[str] = "purge"


Outcome: TypeAlias = Completed | Failed | TimedOut | Crashed | HandedBack | CancelConfirmed
Request: TypeAlias = CancelAsked | Replayed | Prioritized | Discarded | Purged
Event: TypeAlias = Outcome | Request | AlarmRang | Returned | Expired
