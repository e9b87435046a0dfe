"""Every key of the configuration: its name, type, limits, default and one line about it.

One name everywhere: the key `retention_completed_seconds` is that attribute of `Configuration`, the variable
FAIRLEAD_RETENTION_COMPLETED_SECONDS, the flag --retention-completed-seconds, and in fairlead.toml either itself or
`completed_seconds` in the table `[retention]`. Times are seconds here, as users write them.
"""

from __future__ import annotations

import typing
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from fairlead.core.instant import LONGEST, SECOND

_LONGEST: Final = LONGEST / SECOND
_MOST: Final = 2**53 - 1
_DAY: Final = 86_400.0


class Remedy(str):
    """In an annotation: what a valid value looks like, to end the sentence "use …"."""

    __slots__ = ()


class Secret:
    """In an annotation: the value is never shown."""


Text: TypeAlias = Annotated[str, Meta(min_length=1), Remedy("text in quotes")]
Hidden: TypeAlias = Annotated[str, Meta(min_length=1), Remedy("text in quotes"), Secret()]
Names: TypeAlias = Annotated[tuple[str, ...], Remedy("a list of names, or names separated by commas")]
Switch: TypeAlias = Annotated[bool, Remedy("true or false")]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST), Remedy("a whole number of 1 or more")]
Tries: TypeAlias = Annotated[int, Meta(ge=0, le=10_000), Remedy("a whole number from 0 to 10,000")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=_LONGEST), Remedy("seconds as a number, 0 or more")]
Period: TypeAlias = Annotated[float, Meta(ge=0.001, le=_LONGEST), Remedy("seconds as a number, 0.001 or more")]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1), Remedy("a number from 0.0 to 1.0")]
Factor: TypeAlias = Annotated[float, Meta(ge=1, le=1000), Remedy("a number from 1.0 to 1000")]
Rate: TypeAlias = Annotated[float, Meta(ge=0, le=1e9), Remedy("a number, 0 or more")]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535), Remedy("a whole number from 0 to 65535")]
Bytes: TypeAlias = Annotated[int, Meta(ge=2, le=_MOST), Remedy("a whole number of bytes, 2 or more")]
Policy: TypeAlias = Annotated[
    Literal["promote", "strict", "head_start", "weighted"], Remedy("promote, strict, head_start or weighted")
]
SharedAt: TypeAlias = Annotated[Literal["critical", "all"], Remedy("critical or all")]
ShareAmong: TypeAlias = Annotated[Literal["rank", "all", "strict"], Remedy("rank, all or strict")]
Format: TypeAlias = Annotated[Literal["auto", "text", "json"], Remedy("auto, text or json")]
Level: TypeAlias = Annotated[Literal["debug", "info", "warning", "error"], Remedy("debug, info, warning or error")]


class Keys(Struct, frozen=True, kw_only=True):
    """The keys. The text in an annotation is what `fairlead config` says of the key."""

    store: Annotated[Text, "URL of the store, such as sqlite:///path/to/file.db, or of a server: https://host"] = (
        "sqlite:///fairlead.db"
    )
    api_key: Annotated[Hidden | None, "API key for the server, if the store's URL is that of a server, or none"] = None
    journal: Annotated[Text | None, "URL of the journal behind a Redis store: postgresql://host/database, or none"] = (
        None
    )
    journal_required: Annotated[Switch, "Whether a submit fails while the journal is out of reach"] = True
    credentials_command: Annotated[
        Text | None, "Command that prints the password to the store, run for each new connection, or none"
    ] = None
    journal_credentials_command: Annotated[Text | None, "The same for the journal"] = None
    log_level: Annotated[Level, "The least severe messages that are logged"] = "info"
    log_format: Annotated[Format, "How messages are written: text, json, or auto: json but on a terminal"] = "auto"

    queues: Annotated[Names, "Queues that a worker serves; with weights, such as web=3,bulk=1, they share it"] = (
        "default",
    )
    share: Annotated[
        ShareAmong | None,
        "Where a worker's queues share it: rank, among equally urgent tasks; all, before priority; strict, not at all: "
        "a later one has what is left; none: the oldest of the most urgent tasks over all of them",
    ] = None
    capabilities: Annotated[Names, "What a worker can do; tasks that require more are left to others"] = ()
    concurrency: Annotated[Count, "Tasks of `async def` handlers that one worker process runs at once"] = 100
    thread_concurrency: Annotated[
        Count | None, "The same for `def` handlers; none: processors + 4, at most 10 and at most `concurrency`"
    ] = None
    isolated_concurrency: Annotated[
        Count | None, "The same for isolated handlers; none: as many as processors, at most `concurrency`"
    ] = None
    processes: Annotated[Count, "Processes that `fairlead worker` starts"] = 1
    drain_seconds: Annotated[Seconds, "How long running tasks may take to end after SIGTERM"] = 30.0
    keeper: Annotated[Switch, "Whether a process of its own sends a worker's heartbeats; otherwise a thread does"] = (
        True
    )
    metrics_port: Annotated[Port | None, "Port on which a worker shows its metrics, or none; 0 for a free one"] = None
    metrics_host: Annotated[Text, "Address on which a worker shows its metrics, to anybody who reaches it"] = (
        "127.0.0.1"
    )
    sweep_interval_seconds: Annotated[Period, "Time between two sweeps"] = 1.0

    host: Annotated[Text, "Address that a server listens on; beyond loopback it needs keys"] = "127.0.0.1"
    port: Annotated[Port, "Port that a server listens on; 0 for one that is free"] = 8420
    tls_cert: Annotated[Text | None, "File with the TLS certificate and its chain, or none"] = None
    tls_key: Annotated[Text | None, "File with the certificate's private key, or none"] = None
    insecure: Annotated[Switch, "Whether a server may listen beyond loopback while there are no keys"] = False
    root_path: Annotated[Text | None, "Path under which a proxy serves fairlead, such as /fairlead, or none"] = None
    trusted_proxies: Annotated[
        Text | None, "Proxies whose X-Forwarded headers count: addresses with commas, or none"
    ] = None
    rate_limit: Annotated[Rate, "Requests a second from one key, and from all keys of a tenant; 0 for no limit"] = 100.0
    rate_burst: Annotated[Count, "How many of these requests may come at once"] = 100
    admission: Annotated[Switch, "Use the standard numbers for those of the four keys below that are not set"] = False
    admission_urgent_above: Annotated[
        Count | None, "Waiting tasks, over all queues, from which on a server takes only critical and high ones"
    ] = None
    admission_listed_above: Annotated[
        Count | None, "Waiting tasks, over all queues, from which on a server takes only those on the allow list"
    ] = None
    admission_rates: Annotated[
        Text | None, "Tasks that one key, and one tenant, may submit over all servers, such as 10/s, 100/m, 1000/h"
    ] = None
    admission_in_flight: Annotated[Count | None, "Submits that a server works on at once; it refuses more"] = None
    admission_allow: Annotated[
        Text | None, "Who may submit however many tasks wait, such as key:ops, tenant:acme, or none"
    ] = None
    connection_limit: Annotated[Count, "Connections that a server keeps open, and files that it may open for them"] = (
        2_000
    )
    connection_limit_per_peer: Annotated[
        Count, "How many of them may come from one address that is no trusted proxy"
    ] = 500
    session_seconds: Annotated[Period, "How long a browser stays logged in"] = 43_200.0
    try_it: Annotated[Switch, "Whether the dashboard offers to submit tasks to play with"] = False

    lease_seconds: Annotated[Period, "How long a worker holds a task without a heartbeat"] = 30.0
    heartbeat_seconds: Annotated[Period, "Time between two heartbeats; at most half the lease"] = 10.0
    grace_seconds: Annotated[Seconds, "How long past its timeout an attempt may hold its lease"] = 10.0

    payload_limit: Annotated[Bytes, "The largest parameters or result, in bytes"] = 256 * 1024
    queue_bound: Annotated[Count | None, "Tasks that may wait in one queue; none for no bound"] = None
    key_retention_seconds: Annotated[Seconds, "How long an idempotency key answers with its first task"] = _DAY
    retention_completed_seconds: Annotated[Seconds, "How long a completed task is kept"] = _DAY
    retention_cancelled_seconds: Annotated[Seconds, "How long a cancelled task is kept"] = _DAY
    retention_failed_seconds: Annotated[Seconds, "How long a failed task is kept"] = 30 * _DAY
    retention_dead_letter_seconds: Annotated[Seconds, "How long a dead letter is kept"] = 30 * _DAY

    dead_letter_alert: Annotated[Count | None, "Dead letters of one type from which on to alert; none for never"] = None
    dead_letter_alerts: Annotated[Names, "The same for single types: send_mail:100,resize:10"] = ()

    dead_letter_queue_alerts: Annotated[
        Names, "Dead letters in single queues from which on a server alerts: mail:100,images:10"
    ] = ()
    dead_letter_alert_pause_seconds: Annotated[
        Seconds, "Time between two alerts of a server about one type or queue"
    ] = 900.0
    dead_letter_webhook: Annotated[
        Hidden | None, "URL that a server calls with its dead-letter alerts, or none; webhook_* apply"
    ] = None

    defaults_critical_max_retries: Annotated[Tries, "Retries of a critical task"] = 5
    defaults_critical_timeout_seconds: Annotated[Period, "How long an attempt of a critical task may take"] = 300.0
    defaults_high_max_retries: Annotated[Tries, "Retries of a high task"] = 5
    defaults_high_timeout_seconds: Annotated[Period, "How long an attempt of a high task may take"] = 300.0
    defaults_medium_max_retries: Annotated[Tries, "Retries of a medium task"] = 3
    defaults_medium_timeout_seconds: Annotated[Period, "How long an attempt of a medium task may take"] = 600.0
    defaults_low_max_retries: Annotated[Tries, "Retries of a low task"] = 2
    defaults_low_timeout_seconds: Annotated[Period, "How long an attempt of a low task may take"] = 900.0
    max_crashes: Annotated[Tries, "Workers that one task may lose before it is a dead letter"] = 3

    backoff_initial_seconds: Annotated[Seconds, "Delay before the first retry"] = 1.0
    backoff_factor: Annotated[Factor, "How much longer each further delay is"] = 2.0
    backoff_max_seconds: Annotated[Seconds, "The longest delay before a retry"] = 300.0
    backoff_jitter: Annotated[Share, "How far chance may move a delay, as a share of it"] = 0.1
    backoff_max_by_priority: Annotated[
        Switch, "Limit the delay of critical tasks to 10 s, of high tasks to 30 s and of medium tasks to 60 s"
    ] = False
    backoff_max_critical_seconds: Annotated[
        Seconds | None, "The longest delay of a critical task, whatever its backoff; none: as its backoff says"
    ] = None
    backoff_max_high_seconds: Annotated[Seconds | None, "The same for a high task"] = None
    backoff_max_medium_seconds: Annotated[Seconds | None, "The same for a medium task"] = None
    backoff_max_low_seconds: Annotated[Seconds | None, "The same for a low task"] = None

    timeout_growth: Annotated[Factor, "How much longer the next attempt may take after a timeout"] = 1.5
    timeout_ceiling_seconds: Annotated[Seconds, "How far a timeout may grow"] = 3_600.0
    timeout_growth_after_failure: Annotated[
        Switch, "Whether the timeout grows after any failure, not only after a timeout"
    ] = False

    order_policy: Annotated[Policy, "How the next task is chosen: promote, strict, head_start or weighted"] = "promote"
    order_promote_low_seconds: Annotated[Seconds, "promote: wait before low is treated as medium"] = 600.0
    order_promote_medium_seconds: Annotated[Seconds, "promote: further wait before medium is treated as high"] = 1200.0
    order_promote_high_seconds: Annotated[Seconds, "promote: further wait before high is treated as critical"] = 1800.0
    order_promote_share: Annotated[
        SharedAt, "promote: where promoted tasks and others take turns, one of four: critical, or at all priorities"
    ] = "critical"
    order_head_start_critical_seconds: Annotated[
        Seconds, "head_start: how much earlier a critical task counts as submitted"
    ] = 3600.0
    order_head_start_high_seconds: Annotated[
        Seconds, "head_start: how much earlier a high task counts as submitted"
    ] = 1800.0
    order_head_start_medium_seconds: Annotated[
        Seconds, "head_start: how much earlier a medium task counts as submitted"
    ] = 600.0
    order_head_start_low_seconds: Annotated[Seconds, "head_start: how much earlier a low task counts as submitted"] = (
        0.0
    )
    order_weighted_critical: Annotated[Count, "weighted: share of critical tasks"] = 8
    order_weighted_high: Annotated[Count, "weighted: share of high tasks"] = 4
    order_weighted_medium: Annotated[Count, "weighted: share of medium tasks"] = 2
    order_weighted_low: Annotated[Count, "weighted: share of low tasks"] = 1

    webhook_allow_private: Annotated[Switch, "Whether webhooks may go to private and loopback addresses"] = False
    webhook_allow_http: Annotated[Switch, "Whether webhooks may go over plain http"] = False
    webhook_timeout_seconds: Annotated[Period, "How long a webhook may take, redirects included"] = 30.0
    smtp_url: Annotated[Text | None, "Mail server: smtp://user:password@host:587 or smtps://…, or none"] = None
    email_from: Annotated[Text | None, "Sender of email: name@example.com or Name <name@example.com>"] = None


class Key(Struct, frozen=True):
    """What is known of one key."""

    name: str
    type: Any
    default: Any
    doc: str
    remedy: str
    secret: bool = False
    """Whether its value is never shown."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"FAIRLEAD_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def optional(self) -> bool:
        """Whether it can be none."""
        return self.default is None


def _describe(name: str, annotation: Any, default: Any) -> Key:
    *_, doc = annotation.__metadata__
    # Of `Count | None` the remedy is inside the union.
    (inner, *_) = (part for part in (annotation, *typing.get_args(annotation.__origin__)) if _remedies(part))
    (remedy,) = _remedies(inner)
    secret = any(isinstance(note, Secret) for note in getattr(inner, "__metadata__", ()))
    return Key(name, annotation, default, doc, remedy if default is not None else f"{remedy}, or none", secret)


def _remedies(annotation: Any) -> list[str]:
    return [str(note) for note in getattr(annotation, "__metadata__", ()) if isinstance(note, Remedy)]


KEYS: Final[dict[str, Key]] = {
    name: _describe(name, annotation, default)
    for (name, annotation), default in zip(
        typing.get_type_hints(Keys, include_extras=True).items(), Keys.__struct_defaults__, strict=True
    )
}
"""Every key by its name, in the order in which they are shown."""
