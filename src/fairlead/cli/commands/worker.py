"""`worker`: runs the tasks of an app."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from typing import Annotated, Final, NoReturn

from cyclopts import Parameter

from fairlead.app.app import Fairlead
from fairlead.app.config import Configuration
from fairlead.app.config_keys import KEYS
from fairlead.cli import flags
from fairlead.cli.app_loader import BUILTIN, load_app
from fairlead.cli.logs import start_logs
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured, export
from fairlead.cli.supervisor import Supervisor, command_of, leave_with
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.engine.events.types import Observer
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.worker import WorkerSettings

log = Logger("fairlead.cli")

MOST_PORT: Final = 65_535

_MOST_NAMED: Final = 10
_LAST_WORDS: Final = 3.0
"""How long, in seconds, the interpreter may take to end."""


def worker(
    place: Annotated[
        str,
        Parameter(
            name="MODULE:APP",
            help=f"The app: `tasks:app` for `app = Fairlead(…)` in tasks.py; `{BUILTIN}` for the built-in handlers.",
        ),
    ],
    /,
    *,
    queues: Annotated[flags.Text, flags.QUEUES] = None,
    capabilities: Annotated[flags.Text, flags.CAPABILITIES] = None,
    concurrency: Annotated[flags.Text, flags.CONCURRENCY] = None,
    processes: Annotated[flags.Text, flags.PROCESSES] = None,
    drain_seconds: Annotated[flags.Text, flags.DRAIN_SECONDS] = None,
    keeper: Annotated[
        bool | None,
        Parameter(
            negative="--no-keeper",
            help=f"{KEYS['keeper'].doc}. *{KEYS['keeper'].variable}*",
        ),
    ] = None,
    metrics_port: Annotated[flags.Text, flags.METRICS_PORT] = None,
    log_level: Annotated[flags.Text, flags.LOG_LEVEL] = None,
    supervisor: Annotated[int | None, Parameter(show=False)] = None,
    number: Annotated[int, Parameter(show=False)] = 1,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: flags.AnySetting,
) -> int:
    """Run the tasks of an app until SIGTERM or Ctrl-C.

    Then it claims no more, lets running tasks end, and hands back those that take longer than `--drain-seconds`; a
    second signal hands them back at once. The exit code is 0 when nothing was lost.

    The current folder is searched for the module first. Every other setting that `fairlead config` shows can be given
    as a flag too. Of several `--processes` each shows its metrics on a port of its own: `--metrics-port`, the one after
    it, and so on.
    """
    # Until there is work to drain, being asked to leave is simply the end.
    signal.signal(signal.SIGTERM, leave_at_once)
    given = {
        "queues": queues, "capabilities": capabilities, "concurrency": concurrency, "processes": processes,
        "drain-seconds": drain_seconds, "keeper": keeper, "metrics-port": metrics_port, "log-level": log_level,
        **settings,
    }  # fmt: skip
    configuration = configured(common, given)
    transitions = start_logs(configuration, common)
    if supervisor is not None:
        leave_with(supervisor)
    elif configuration.processes > 1:
        return _supervise(configuration.processes)
    export(common, given)
    observers: list[Observer] = [transitions]
    port = configuration.metrics_port
    if port is not None:
        observers.append(Metrics())
        port = metrics_port_of(port, number)
    # What makes the interpreter abort is told, too: a handler may close the descriptors that the event loop waits on.
    faulthandler.enable()
    app = load_app(place, configuration, tuple(observers))
    code = 1
    try:
        _work(app, None if place == BUILTIN else place.partition(":")[0], configuration, port)
        code = 0
    finally:
        _leave_soon(code)
    return code


def _work(app: Fairlead, module: str | None, configuration: Configuration, metrics_port: int | None) -> None:
    log.info(
        "working on %s: queues %s; types %s; %d at once",
        masked(app.store),
        ", ".join(configuration.queues),
        ", ".join(sorted(app.handlers.types)) or "none",
        configuration.concurrency,
    )
    app.run_worker(
        queues=configuration.queues,
        capabilities=configuration.capabilities,
        settings=WorkerSettings(
            concurrency=configuration.concurrency, drain_seconds=configuration.drain_seconds, app=module
        ),
        keeper_process=configuration.keeper,
        metrics_host=configuration.metrics_host,
        metrics_port=metrics_port,
    )
    log.info("stopped")


def _leave_soon(code: int) -> None:
    """Have the process end in a moment, whatever handlers have left that Python waits for at its end.

    That is threads, executors, and what is to be called at the exit; a daemon thread runs beside all of them.
    """
    overdue = threading.Timer(_LAST_WORDS, _leave_behind, [code])
    overdue.daemon = True
    overdue.start()


def _leave_behind(code: int) -> None:
    try:
        left = [each.name for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]
        log.warning("exiting without waiting for what handlers left running: %s", ", ".join(left[:_MOST_NAMED]) or "…")
        logging.shutdown()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    finally:
        os._exit(code)


def metrics_port_of(port: int, number: int) -> int:
    """The port of one of several processes, counted from 1: each has its own, and is asked by itself."""
    if port and port + number - 1 > MOST_PORT:
        raise InvalidSettings(f"metrics_port {port} leaves no port for process {number}; choose a smaller one")
    return port and port + number - 1


def _supervise(processes: int) -> int:
    """Start this same command so many times over, each knowing whom it works for."""
    command, *arguments = sys.argv[1:]

    def command_for(number: int) -> list[str]:
        return command_of([command, f"--supervisor={os.getpid()}", f"--number={number}", *arguments])

    return asyncio.run(Supervisor(command_for, processes).run())


def leave_at_once(number: int, frame: object) -> NoReturn:
    sys.exit(0)
