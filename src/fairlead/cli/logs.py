"""Logs of a running command: set up as the configuration wants them."""

from __future__ import annotations

import sys

from fairlead.app.config import Configuration
from fairlead.cli.options import Shared
from fairlead.worker.logs import LogSetup, log_handler, start_logging
from fairlead.worker.task_log import TransitionLog


def start_logs(configuration: Configuration, common: Shared) -> TransitionLog:
    """Send the logs of this process to stderr from now on; the answer is what tells them of tasks."""
    as_json = common.json or configuration.log_format == "json"
    if configuration.log_format == "auto" and not common.json:
        as_json = not sys.stderr.isatty()
    start_logging(LogSetup(configuration.log_level, as_json))
    handler = log_handler()
    assert handler is not None  # noqa: S101 - it was just made
    return TransitionLog(handler)
