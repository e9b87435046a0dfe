"""How the server behaves, whatever the engine's settings are."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.queues.admission import AdmissionSettings


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The limits of one server process."""

    body_limit: int = 512 * 1024
    """The largest body of a request for one task, in bytes; payload_limit says how much of it may be parameters."""
    batch_limit: int = 10 * 1024 * 1024
    """The largest body of a request for many tasks, in bytes."""
    body_seconds: float = 10.0
    """How long a body may take to arrive."""
    head_seconds: float = 10.0
    """How long the head of a request may take, from its first byte to its end."""
    idle_seconds: float = 75.0
    """How long a connection may be idle, which no bytes but a request's end, and how long an answer may lie unread.

    Longer than the load balancers in front keep theirs."""
    connection_limit: int = 2_000
    """How many connections are kept open; fewer if the process may not open as many files."""
    connection_limit_per_peer: int = 500
    """How many of them may come from one address, or from one network of 64 bits of IPv6; never more than half."""
    wait_seconds: float = 60.0
    """The longest long poll."""
    rate_limit: float = 100.0
    """Requests a second that are taken from one key, and from all keys of one tenant; 0 for no limit."""
    rate_burst: int = 100
    """How many of them may come at once."""
    admission: AdmissionSettings = AdmissionSettings()
    """When submits are refused while tasks flood in; never, unless said."""
    session_seconds: float = 12 * 3600.0
    """How long a browser stays logged in."""
    dead_letter_queue_alerts: tuple[tuple[str, int], ...] = ()
    """From how many dead letters in these queues on the server tells of them; of task types the engine's settings say
    so."""
    dead_letter_alert_pause_seconds: float = 900.0
    """How long after one alert the next of the same task type or queue may come, and how long none may be added for the
    next to be of something new."""
    try_it: bool = False
    """Whether the dashboard offers to submit tasks to play with."""
