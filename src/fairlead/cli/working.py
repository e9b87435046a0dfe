"""`worker`: runs the tasks of an app."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Annotated, NoReturn

from cyclopts import Parameter

from fairlead.cli import flags
from fairlead.cli.loading import BUILTIN, load_app
from fairlead.cli.logs import start_logging, task_observer
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured, export
from fairlead.cli.supervisor import Supervisor, command_of, leave_with
from fairlead.sdk.app import Fairlead
from fairlead.sdk.configuration import Configuration, masked
from fairlead.worker.worker import WorkerSettings

log = logging.getLogger("fairlead.cli")


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
            help="Whether heartbeats are sent by a process of their own, so that no handler can hold them up. "
            "*FAIRLEAD_KEEPER*",
        ),
    ] = None,
    log_level: Annotated[flags.Text, flags.LOG_LEVEL] = None,
    supervisor: Annotated[int | None, Parameter(show=False)] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: flags.AnySetting,
) -> int:
    """Run the tasks of an app until SIGTERM or Ctrl-C.

    Then it claims no more, lets running tasks end, and hands back those that take longer than `--drain-seconds`; a
    second signal hands them back at once. The exit code is 0 when nothing was lost.

    The current folder is searched for the module first. Every other setting that `fairlead config` shows can be given
    as a flag too.
    """
    # Until there is work to drain, being asked to leave is simply the end.
    signal.signal(signal.SIGTERM, leave_at_once)
    given = {
        "queues": queues, "capabilities": capabilities, "concurrency": concurrency, "processes": processes,
        "drain-seconds": drain_seconds, "keeper": keeper, "log-level": log_level, **settings,
    }  # fmt: skip
    configuration = configured(common, given)
    start_logging(configuration.log_level, as_json=common.json)
    if supervisor is not None:
        leave_with(supervisor)
    elif configuration.processes > 1:
        return _supervise(configuration.processes)
    export(common, given)
    _work(load_app(place, configuration, (task_observer(chatty=False),)), configuration)
    return 0


def _work(app: Fairlead, configuration: Configuration) -> None:
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
        settings=WorkerSettings(concurrency=configuration.concurrency, drain_seconds=configuration.drain_seconds),
        keeper_process=configuration.keeper,
    )
    log.info("left")


def _supervise(processes: int) -> int:
    """Start this same command so many times over, each knowing whom it works for."""
    command, *arguments = sys.argv[1:]
    return asyncio.run(Supervisor(command_of([command, f"--supervisor={os.getpid()}", *arguments]), processes).run())


def leave_at_once(number: int, frame: object) -> NoReturn:
    sys.exit(0)
