"""Handlers that need no code of yours: echo, sleep and fail for trying things, webhook and email for real work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from fairlead.core.retry import Reject
from fairlead.core.secret_mask import Masked
from fairlead.worker.builtin.email import Mailer
from fairlead.worker.builtin.webhook import Sender

__all__ = ["BuiltinSettings", "builtin_handlers"]


class BuiltinSettings(Masked, frozen=True, kw_only=True):
    """What the built-in handlers need to know."""

    webhook_allow_private: bool = False
    webhook_allow_http: bool = False
    webhook_timeout: float = 30.0
    """Seconds, redirects included."""
    smtp_url: str | None = None
    email_from: str | None = None


def builtin_handlers(settings: BuiltinSettings) -> dict[str, Callable[..., Any]]:
    """The handlers by task type; raises InvalidSettings when a setting makes no sense.

    `webhook` and `email` are `def` and block their thread, no longer than their timeouts and the name lookup allow; the
    others are `async def`.
    """
    sender = Sender(
        allow_private=settings.webhook_allow_private,
        allow_http=settings.webhook_allow_http,
        timeout=settings.webhook_timeout,
    )
    mailer = Mailer(settings.smtp_url, settings.email_from)
    return {"echo": echo, "sleep": sleep, "fail": fail, "webhook": sender.webhook, "email": mailer.email}


async def echo(message: Any = "") -> Any:
    """Return the message, which may be any JSON value."""
    return message


async def sleep(seconds: Annotated[float, Meta(ge=0)] = 1.0) -> float:
    """Wait for so many seconds, and return them."""
    await asyncio.sleep(seconds)
    return seconds


async def fail(message: str = "this task fails because it was asked to", retriable: bool = True) -> None:
    """Fail: as an error of a handler does, so that it is tried again, or for good."""
    if not retriable:
        raise Reject(message)
    raise RuntimeError(message)
