"""`up`: everything in one process, to try things or for a small installation."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairlead._version import __version__
from fairlead.app.app import Fairlead
from fairlead.app.builtin import builtin_app
from fairlead.app.config import Configuration
from fairlead.app.config_keys import KEYS
from fairlead.cli import flags
from fairlead.cli.commands.serve import INSTALL, has_server, open_server
from fairlead.cli.commands.worker import leave_at_once
from fairlead.cli.logs import start_logs
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import Cell, write, write_json, write_styled
from fairlead.core.secret_mask import masked
from fairlead.engine.metrics.collector import Metrics
from fairlead.worker.process import Service, serve
from fairlead.worker.worker import WorkerSettings

if TYPE_CHECKING:
    from fairlead.server.server import Server

log = logging.getLogger("fairlead.cli")


def up(
    *,
    concurrency: Annotated[flags.Text, flags.CONCURRENCY] = None,
    host: Annotated[flags.Text, flags.HOST] = None,
    port: Annotated[flags.Text, flags.PORT] = None,
    log_level: Annotated[flags.Text, flags.LOG_LEVEL] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: flags.AnySetting,
) -> None:
    """Start everything in one process: the store, the HTTP API, and a worker with the built-in handlers.

    They are `echo`, `sleep`, `fail`, `webhook` and `email`. Ctrl-C lets running tasks end; a second one hands them
    back. Every other setting that `fairlead config` shows can be given as a flag too. Without the extra
    `fairlead[server]` the worker runs alone.
    """
    signal.signal(signal.SIGTERM, leave_at_once)
    given = {"concurrency": concurrency, "host": host, "port": port, "log-level": log_level, **settings}
    configuration = configured(common, given)
    transitions = start_logs(configuration, common)
    metrics = Metrics()
    app = builtin_app(configuration, observers=[transitions, metrics])
    servers: list[Server] = []

    async def prepare() -> Sequence[Service]:
        try:
            if has_server():
                # The worker sweeps already.
                engine = await app.store_connection().engine()
                servers.append(await open_server(engine, configuration, metrics, sweep=False, try_it=True))
            return [*servers, await _worker(app, configuration)]
        except BaseException:
            await app.close()
            raise

    def ready() -> None:
        url = servers[0].url if servers else None
        if common.json:
            types = sorted(app.handlers.types)
            write_json({"version": __version__, "store": masked(app.store), "types": types, "url": url})
        else:
            _welcome(app, configuration, url)
        sys.stdout.flush()

    serve(prepare, app.close, ready)
    log.info("stopped; unfinished tasks wait in the store")


async def _worker(app: Fairlead, configuration: Configuration) -> Service:
    worker = await app.worker(
        queues=configuration.queues,
        capabilities=configuration.capabilities,
        settings=WorkerSettings(concurrency=configuration.concurrency, drain_seconds=configuration.drain_seconds),
        # The built-in handlers never hold the interpreter for long, so a thread can send their heartbeats.
        keeper_process=False,
    )
    return await app.exposed(worker, configuration.metrics_host, configuration.metrics_port)


def _welcome(app: Fairlead, configuration: Configuration, url: str | None) -> None:
    command = _command()
    store = "" if configuration.store == KEYS["store"].default else f" --store {masked(configuration.store)}"
    write_styled([Cell(f"fairlead {__version__}", "bold"), Cell(f" is up on {masked(app.store)}.")])
    write(f"A worker runs {', '.join(sorted(app.handlers.types))} tasks, {configuration.concurrency} at once.")
    if url is None:
        write(f"The HTTP API is not installed; {INSTALL}.")
    else:
        write(f"The dashboard is at {url}, and the documentation of the HTTP API at {url}/docs.")
    write("\nTry this in another terminal, in the same folder:\n")
    for line in (
        f"submit echo message=hello --wait{store}",
        f"submit sleep seconds=10 --priority high{store}",
        f"submit fail message=oops --max-retries 1{store}",
        f"list{store}",
        f"stats{store}",
    ):
        write_styled([Cell(f"  {command} {line}", "cyan")])
    if url is not None:
        task = """'{"task_type": "echo", "parameters": {"message": "hello"}}'"""
        write_styled([Cell(f"  curl {url}/api/v1/tasks --json {task}", "cyan")])
    write("\nCtrl-C stops it: running tasks may end first. A second Ctrl-C hands them back.")


def _command() -> str:
    """How to call this program again from the same folder."""
    found = shutil.which("fairlead")
    beside = Path(sys.executable).parent / "fairlead"
    if found is not None and Path(found).resolve() == beside.resolve():
        return "fairlead"
    if not beside.exists():
        return f"{sys.executable} -m fairlead"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)
