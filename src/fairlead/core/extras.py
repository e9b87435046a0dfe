"""What a bare install leaves out: the extras, the packages that each brings, and how a missing one is told.

A package in this table is imported where it is used, or at the top of a module of its own package (`storage.redis`,
`storage.postgres`, `storage.journal`, `server`, `testing`), which others import only when they use it.
"""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {
    "redis": ("hiredis",),
    "postgres": ("psycopg",),
    "server": ("httptools", "starlette", "uvicorn", "websockets"),
    "client": ("httptools", "httpx"),
    "otel": ("opentelemetry",),
    "sentry": ("sentry_sdk",),
    "fast": ("uvloop",),
    "testing": ("hypothesis", "pytest"),
}
"""The packages that each extra brings, by the names they are imported by."""


def install(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install 'fairlead[{','.join(extras)}]'"


def extra_of(missing: ModuleNotFoundError) -> str | None:
    """The extra that brings what was not found; None if that is no package of an extra."""
    package = _package(missing)
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def told(missing: ModuleNotFoundError, what: str, extra: str | None = None) -> str | None:
    """The sentence that says what cannot be done without the package and how to install it; None if no extra has it.

    If several extras bring the package, it names the one that is given.
    """
    package = _package(missing)
    named = extra if extra is not None and package in EXTRAS[extra] else extra_of(missing)
    return None if named is None else f"{what} needs the package {package!r}; {install(named)}"


def _package(missing: ModuleNotFoundError) -> str:
    return (missing.name or "").partition(".")[0]
