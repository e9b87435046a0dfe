"""`worker`: runs the tasks of an app, in this process or in several under one parent, which replaces those that die."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final, NoReturn

from cyclopts import Parameter
from msgspec.structs import replace

from fairlead.app.app import Fairlead
from fairlead.app.config import Configuration
from fairlead.app.config_keys import KEYS
from fairlead.cli import options
from fairlead.cli.app_loader import BUILTIN, AskedToLeave, load_app
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, Shared, configured, export
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.engine.events.types import Observer
from fairlead.engine.metrics.collector import Metrics
from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.logs import LogSetup, log_handler, start_logging
from fairlead.worker.process import Service, serve
from fairlead.worker.slots import WorkerSlots
from fairlead.worker.task_log import TransitionLog
from fairlead.worker.worker import Worker, WorkerSettings

log = Logger("fairlead.cli")

MOST_PORT: Final = 65_535

_MOST_NAMED: Final = 10
_LAST_WORDS: Final = 3.0
"""How long, in seconds, the interpreter may take to end."""


def start_logs(configuration: Configuration, common: Shared) -> TransitionLog:
    """Send the logs of this process to stderr from now on; the answer is what tells them of tasks."""
    as_json = common.json or configuration.log_format == "json"
    if configuration.log_format == "auto" and not common.json:
        as_json = not sys.stderr.isatty()
    start_logging(LogSetup(configuration.log_level, as_json))
    handler = log_handler()
    assert handler is not None  # noqa: S101 - it was just made
    return TransitionLog(handler)


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
    queues: Annotated[options.Text, options.QUEUES] = None,
    capabilities: Annotated[options.Text, options.CAPABILITIES] = None,
    concurrency: Annotated[options.Text, options.CONCURRENCY] = None,
    thread_concurrency: Annotated[options.Text, options.THREAD_CONCURRENCY] = None,
    isolated_concurrency: Annotated[options.Text, options.ISOLATED_CONCURRENCY] = None,
    processes: Annotated[options.Text, options.PROCESSES] = None,
    drain_seconds: Annotated[options.Text, options.DRAIN_SECONDS] = None,
    keeper: Annotated[
        bool | None,
        Parameter(
            negative="--no-keeper",
            help=f"{KEYS['keeper'].doc}. *{KEYS['keeper'].variable}*",
        ),
    ] = None,
    metrics_port: Annotated[options.Text, options.METRICS_PORT] = None,
    log_level: Annotated[options.Text, options.LOG_LEVEL] = None,
    max_tasks: Annotated[
        int | None,
        Parameter(converter=options.whole, help="Begin again in a fresh process after so many tasks.", metavar="N"),
    ] = None,
    max_memory: Annotated[
        int | None,
        Parameter(converter=options.whole, help="Begin again in a fresh process above so many bytes.", metavar="BYTES"),
    ] = None,
    until_empty: Annotated[
        bool, Parameter(negative="", help="Leave when nothing is ready and nothing runs; for one process.")
    ] = False,
    supervisor: Annotated[int | None, Parameter(show=False)] = None,
    number: Annotated[int, Parameter(show=False)] = 1,
    common: CommonWithStore = COMMON_WITH_STORE,
    **settings: options.AnySetting,
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
        "queues": queues, "capabilities": capabilities, "concurrency": concurrency,
        "thread-concurrency": thread_concurrency, "isolated-concurrency": isolated_concurrency,
        "processes": processes, "drain-seconds": drain_seconds, "keeper": keeper, "metrics-port": metrics_port,
        "log-level": log_level, **settings,
    }  # fmt: skip
    configuration = configured(common, given)
    if until_empty and configuration.processes > 1:
        raise InvalidSettings(f"--until-empty is for one process, not {configuration.processes}; leave one of them out")
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
    again = False
    module = None if place == BUILTIN else place.partition(":")[0]
    life = WorkerSettings(max_tasks=max_tasks, max_memory=max_memory, until_empty=until_empty)
    try:
        again = _work(app, worker_settings(configuration, module, life), configuration, port)
        code = 0
    finally:
        if not again:
            _leave_soon(code)
    if again:
        _begin_again()
    return code


def _begin_again() -> NoReturn:
    """Run this same command in a fresh process, which has this one's place, number and parent.

    What is to be called at the exit is called before, but has a moment only, as when a worker ends.
    """
    log.info("beginning again in a fresh process")
    overdue = threading.Timer(_LAST_WORDS, _replace_process)
    overdue.daemon = True
    overdue.start()
    atexit._run_exitfuncs()
    _replace_process()


def _replace_process() -> NoReturn:
    logging.shutdown()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    command = command_of(sys.argv[1:])
    os.execv(command[0], command)  # noqa: S606 - the very command that this process was started with


def _work(app: Fairlead, settings: WorkerSettings, configuration: Configuration, metrics_port: int | None) -> bool:
    log.info(
        "working on %s: queues %s; types %s; %s at once",
        masked(app.store),
        ", ".join(configuration.queues),
        ", ".join(sorted(app.handlers.types)) or "none",
        slots_told(app, settings),
    )
    worker: Worker | None = None

    async def prepare() -> list[Service]:
        nonlocal worker
        worker = await app.worker(
            queues=configuration.queues,
            capabilities=configuration.capabilities,
            settings=settings,
            keeper_process=configuration.keeper,
            share=configuration.share,
        )
        return [await app.exposed(worker, configuration.metrics_host, metrics_port)]

    serve(prepare, app.close)
    log.info("stopped")
    return worker is not None and worker.recycles


def worker_settings(
    configuration: Configuration, module: str | None = None, life: WorkerSettings | None = None
) -> WorkerSettings:
    """How a worker is to behave, of the app in a module if it is in one; and for how long, if that is said."""
    return replace(
        life or WorkerSettings(),
        concurrency=configuration.concurrency,
        thread_concurrency=configuration.thread_concurrency,
        isolated_concurrency=configuration.isolated_concurrency,
        drain_seconds=configuration.drain_seconds,
        app=module,
    )


def slots_told(app: Fairlead, settings: WorkerSettings) -> str:
    """How many tasks a worker of an app runs at once, of each kind of handler that the app has."""
    counts = WorkerSlots(app.handlers, settings.capacities).counts
    if len(counts) == 1:
        return str(counts[0].capacity)
    return ", ".join(f"{each.capacity} {each.kind}" for each in counts)


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
    raise AskedToLeave(0)


MISUSED: Final = 2
"""The exit code of a child that another start cannot help."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONG_ENOUGH: Final = 60.0
"""A child that lived this long, in seconds, was well: the next pause is the first again."""

_PR_SET_PDEATHSIG: Final = 1


class Supervisor:
    """Keeps a number of children running until it is asked to leave."""

    def __init__(self, command: Callable[[int], Sequence[str]], count: int) -> None:
        """The command is that of the first child, the second, and so on."""
        self._command = command
        self._count = count
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._leaving = asyncio.Event()
        self._misused = False
        self._failed = False

    async def run(self) -> int:
        """Run until all children have left; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._forward, number)
        async with asyncio.TaskGroup() as group:
            for place in range(1, self._count + 1):
                group.create_task(self._keep(place))
        if self._misused:
            return MISUSED
        return 1 if self._failed else 0

    def _forward(self, number: signal.Signals) -> None:
        """Ask every child to leave. A second signal is passed on too: it makes them hurry."""
        self._leaving.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, place: int) -> None:
        pause = _FIRST_PAUSE
        while not self._leaving.is_set():
            started = time.monotonic()
            child = await self._start(place)
            code = await child.wait()
            del self._children[place]
            if self._leaving.is_set():
                self._failed |= code not in (0, -signal.SIGTERM, -signal.SIGINT)
                return
            if code == MISUSED:
                # It has said itself what is wrong, and the others would say the same.
                self._misused = True
                self._forward(signal.SIGTERM)
                return
            if time.monotonic() - started > _LONG_ENOUGH:
                pause = _FIRST_PAUSE
            log.warning(
                "worker process %d of %d (pid %d) %s; another starts in %g s",
                place, self._count, child.pid, _ending(code), pause,
            )  # fmt: skip
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _start(self, place: int) -> asyncio.subprocess.Process:
        # A group of its own: the terminal's Ctrl-C must reach a child once, through this process, and not twice.
        child = await asyncio.create_subprocess_exec(*self._command(place), stdin=subprocess.DEVNULL, process_group=0)
        self._children[place] = child
        log.info("worker process %d of %d is pid %d", place, self._count, child.pid)
        if self._leaving.is_set():
            child.terminate()
        return child


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def leave_with(parent: int) -> None:
    """Have this process asked to leave when its parent is gone, where the kernel can do that."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # It was gone before the kernel was told.
            os.kill(os.getpid(), signal.SIGTERM)


def command_of(arguments: Sequence[str]) -> list[str]:
    """This program with other arguments, run by the same interpreter with the same options."""
    return [sys.executable, *subprocess._args_from_interpreter_flags(), "-m", "fairlead", *arguments]  # type: ignore[attr-defined]
