"""How the server behaves, whatever the engine's settings are."""

from __future__ import annotations

from msgspec import Struct


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The limits of one server process."""

    body_limit: int = 512 * 1024
    """The largest body of a request for one task, in bytes; payload_limit says how much of it may be parameters."""
    batch_limit: int = 10 * 1024 * 1024
    """The largest body of a request for many tasks, in bytes."""
    body_seconds: float = 10.0
    """How long a body may take to arrive."""
    wait_seconds: float = 60.0
    """The longest long poll."""
    rate_limit: float = 100.0
    """Requests a second that are taken from one key, and from all keys of one tenant; 0 for no limit."""
    rate_burst: int = 100
    """How many of them may come at once."""
    session_seconds: float = 12 * 3600.0
    """How long a browser stays logged in."""
    try_it: bool = False
    """Whether the dashboard offers to submit tasks to play with."""
