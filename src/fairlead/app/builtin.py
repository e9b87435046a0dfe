"""A ready-made app whose task types are the built-in handlers."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.app.app import Fairlead
from fairlead.app.config import Configuration
from fairlead.engine.events.types import Observer
from fairlead.worker.builtin import BuiltinSettings, builtin_handlers


def builtin_app(configuration: Configuration, *, observers: Sequence[Observer] = ()) -> Fairlead:
    """An app on the configured store that runs echo, sleep, fail, webhook and email."""
    app = Fairlead(
        configuration.store_url,
        journal=configuration.journal_url,
        settings=configuration.engine_settings(),
        observers=observers,
        api_key=configuration.api_key,
    )
    settings = BuiltinSettings(
        webhook_allow_private=configuration.webhook_allow_private,
        webhook_allow_http=configuration.webhook_allow_http,
        webhook_timeout=configuration.webhook_timeout_seconds,
        smtp_url=configuration.smtp_url,
        email_from=configuration.email_from,
    )
    for name, function in builtin_handlers(settings).items():
        app.task(name=name)(function)
    return app
