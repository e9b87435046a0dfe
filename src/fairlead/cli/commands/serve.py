"""`serve`: the HTTP service; and `up`: everything in one process, to try things or for a small installation."""

from __future__ import annotations

import functools
import importlib.util
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from fairlead._version import __version__
from fairlead.admin.engine import AdminEngine
from fairlead.app.app import Fairlead
from fairlead.app.config import Configuration
from fairlead.app.config_keys import KEYS
from fairlead.app.connection import Connection
from fairlead.cli import options
from fairlead.cli.commands.worker import leave_at_once, slots_told, start_logs, worker_settings
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import Cell, write, write_json, write_styled
from fairlead.core import extras
from fairlead.core.errors import InvalidSettings
from fairlead.core.retry import Reject
from fairlead.core.secret_mask import masked
from fairlead.engine.metrics.collector import Metrics
from fairlead.storage.open import check_journal, check_url
from fairlead.worker.process import Service
from fairlead.worker.process import serve as run_services

if TYPE_CHECKING:
    from fairlead.server.server import Server

log = logging.getLogger("fairlead.cli")

INSTALL: Final = f"install it with `{extras.install('server')}`"

_ENVELOPE: Final = 256 * 1024
"""What a request may have around its parameters, in bytes."""


def serve(
    *,
    host: Annotated[options.Text, options.HOST] = None,
    port: Annotated[options.Text, options.PORT] = None,
    cert: Annotated[
        options.Text, Parameter(help=f"{KEYS['tls_cert'].doc}. *{KEYS['tls_cert'].variable}*", metavar="FILE")
    ] = None,
    key: Annotated[
        options.Text, Parameter(help=f"{KEYS['tls_key'].doc}. *{KEYS['tls_key'].variable}*", metavar="FILE")
    ] = None,
    insecure: Annotated[bool | None, Parameter(help=f"{KEYS['insecure'].doc}. *{KEYS['insecure'].variable}*")] = None,
    root_path: Annotated[options.Text, options.ROOT_PATH] = None,
    trusted_proxies: Annotated[options.Text, options.TRUSTED_PROXIES] = None,
    log_level: Annotated[options.Text, options.LOG_LEVEL] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: options.AnySetting,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C.

    Then it accepts no more connections, answers the polls that wait, and finishes the requests that it has accepted,
    for up to `drain_seconds`; a second signal ends them at once.

    As long as the store has no keys it serves this machine only, and every caller may do everything. `fairlead keys
    create` makes the first key; from then on every call needs one.
    """
    # Until there is something to finish, being asked to leave is simply the end.
    signal.signal(signal.SIGTERM, leave_at_once)
    given = {
        "host": host, "port": port, "tls-cert": cert, "tls-key": key, "insecure": insecure, "root-path": root_path,
        "trusted-proxies": trusted_proxies, "log-level": log_level, **settings,
    }  # fmt: skip
    configuration = configured(common, given)
    transitions = start_logs(configuration, common)
    if not has_server():
        raise InvalidSettings(f"the server is not installed; {INSTALL}")
    check_url(configuration.store_url)
    check_journal(configuration.store_url, configuration.journal_url)
    metrics = Metrics()
    connection = Connection(
        configuration.store_url,
        configuration.engine_settings(),
        journal=configuration.journal_url,
        observers=[transitions, metrics],
    )
    servers: list[Server] = []

    async def prepare() -> Sequence[Service]:
        try:
            servers.append(await open_server(await connection.engine(), configuration, metrics))
        except BaseException:
            await connection.close()
            raise
        return servers

    def ready() -> None:
        (server,) = servers
        if common.json:
            write_json({"version": __version__, "url": server.url, "store": masked(configuration.store)})
        else:
            write_styled([Cell(f"fairlead {__version__}", "bold"), Cell(f" serves {masked(configuration.store)} at")])
            write_styled([Cell(f"  {server.url}", "cyan")])
            write(f"The dashboard is there too, and the documentation of the API at {server.url}/docs.")
            write("Ctrl-C stops it: accepted requests may end first.")
        sys.stdout.flush()

    run_services(prepare, connection.close, ready)
    log.info("stopped")


def has_server() -> bool:
    """Whether the packages that the server needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in extras.EXTRAS["server"])


async def open_server(
    engine: AdminEngine, configuration: Configuration, metrics: Metrics, *, sweep: bool = True, try_it: bool = False
) -> Server:
    """A server as the configuration wants it; it listens already. With `try_it` the dashboard has its playground."""
    from fairlead.server.http.connections import allow_files
    from fairlead.server.server import Binding
    from fairlead.server.server import open_server as open_running
    from fairlead.server.settings import ServerSettings

    defaults = ServerSettings()
    settings = ServerSettings(
        body_limit=max(defaults.body_limit, configuration.payload_limit + _ENVELOPE),
        batch_limit=max(defaults.batch_limit, configuration.payload_limit + _ENVELOPE),
        rate_limit=configuration.rate_limit,
        rate_burst=configuration.rate_burst,
        admission=configuration.admission_settings(),
        connection_limit=configuration.connection_limit,
        connection_limit_per_peer=configuration.connection_limit_per_peer,
        session_seconds=configuration.session_seconds,
        dead_letter_queue_alerts=configuration.queue_alerts(),
        dead_letter_alert_pause_seconds=configuration.dead_letter_alert_pause_seconds,
        try_it=try_it or configuration.try_it,
    )
    binding = Binding(
        host=configuration.host,
        port=configuration.port,
        cert=configuration.tls_cert,
        key=configuration.tls_key,
        insecure=configuration.insecure,
        root_path=_root_path(configuration.root_path),
        trusted_proxies=configuration.trusted_proxies or "",
        grace_seconds=configuration.drain_seconds,
    )
    webhook = _dead_letter_webhook(configuration)
    allow_files(settings.connection_limit)
    return await open_running(engine, binding, settings, sweep=sweep, metrics=metrics, webhook=webhook)


def _dead_letter_webhook(configuration: Configuration) -> Callable[[object], object] | None:
    """What calls the webhook of dead-letter alerts, under the rules for those of tasks; None if there is none."""
    url = configuration.dead_letter_webhook
    if url is None:
        return None
    from fairlead.worker.builtin.outbound import parse_target
    from fairlead.worker.builtin.webhook import Sender

    try:
        parse_target(url, allow_http=configuration.webhook_allow_http)
    except Reject as error:
        raise InvalidSettings(f"dead_letter_webhook cannot be used: {error}") from None
    sender = Sender(
        allow_private=configuration.webhook_allow_private,
        allow_http=configuration.webhook_allow_http,
        timeout=configuration.webhook_timeout_seconds,
    )
    return functools.partial(sender.webhook, url)


def _root_path(written: str | None) -> str:
    path = (written or "").rstrip("/")
    if path and (not path.startswith("/") or not path.isascii() or any(sign in path for sign in " ;,?#%")):
        raise InvalidSettings(f"root_path cannot be {written!r}; use a path of plain letters, such as /fairlead")
    return path


def up(
    *,
    concurrency: Annotated[options.Text, options.CONCURRENCY] = None,
    thread_concurrency: Annotated[options.Text, options.THREAD_CONCURRENCY] = None,
    isolated_concurrency: Annotated[options.Text, options.ISOLATED_CONCURRENCY] = None,
    host: Annotated[options.Text, options.HOST] = None,
    port: Annotated[options.Text, options.PORT] = None,
    log_level: Annotated[options.Text, options.LOG_LEVEL] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: options.AnySetting,
) -> None:
    """Start everything in one process: the store, the HTTP API, and a worker with the built-in handlers.

    They are `echo`, `sleep`, `fail`, `webhook` and `email`. Ctrl-C lets running tasks end; a second one hands them
    back. Every other setting that `fairlead config` shows can be given as a flag too. Without the extra
    `fairlead[server]` the worker runs alone.
    """
    from fairlead.app.builtin import builtin_app  # As a server alone needs none of its handlers.

    signal.signal(signal.SIGTERM, leave_at_once)
    given = {
        "concurrency": concurrency, "thread-concurrency": thread_concurrency,
        "isolated-concurrency": isolated_concurrency, "host": host, "port": port, "log-level": log_level, **settings,
    }  # fmt: skip
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

    run_services(prepare, app.close, ready)
    log.info("stopped; unfinished tasks wait in the store")


async def _worker(app: Fairlead, configuration: Configuration) -> Service:
    worker = await app.worker(
        queues=configuration.queues,
        capabilities=configuration.capabilities,
        settings=worker_settings(configuration),
        # The built-in handlers never hold the interpreter for long, so a thread can send their heartbeats.
        keeper_process=False,
        share=configuration.share,
    )
    return await app.exposed(worker, configuration.metrics_host, configuration.metrics_port)


def _welcome(app: Fairlead, configuration: Configuration, url: str | None) -> None:
    command = _command()
    store = "" if configuration.store == KEYS["store"].default else f" --store {masked(configuration.store)}"
    write_styled([Cell(f"fairlead {__version__}", "bold"), Cell(f" is up on {masked(app.store)}.")])
    at_once = slots_told(app, worker_settings(configuration))
    write(f"A worker runs {', '.join(sorted(app.handlers.types))} tasks, {at_once} at once.")
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
