"""Watching: one thread looks at the store, the other draws and reads keys."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from fairlead.admin.facade import Facade
from fairlead.cli.top.survey import Survey, survey
from fairlead.cli.top.terminal import Screen
from fairlead.cli.top.view import TopView, first_view, frame
from fairlead.core.errors import FairleadError
from fairlead.core.instant import Instant
from fairlead.core.validation import span_of
from fairlead.engine.runtime.inline import run_inline

_TICK: Final = 1.0
"""The picture is drawn anew at least this often, in seconds: a store that does not answer must be seen not to."""
_PATIENCE: Final = 1.0
"""How long a look that is under way is waited for when the user wants to leave, in seconds."""


class TopWatcher:
    """Looks again and again, in a thread of its own: a store that hangs must not hold up the keys."""

    def __init__(self, engine: Facade, interval: float, tell: Callable[[], None]) -> None:
        self._engine = engine
        self._interval = interval
        self._tell = tell
        self._looks: queue.SimpleQueue[Survey | FairleadError] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, with the first look one interval from now."""
        self._thread.start()

    def after(self, view: TopView) -> TopView:
        """What there is to see after the looks since the last call."""
        while not self._looks.empty():
            look = self._looks.get()
            view = view.missed(str(look), _now()) if isinstance(look, FairleadError) else view.seen(look, _now())
        return view

    def leave(self) -> bool:
        """Look no more; whether a look that was under way has ended, too."""
        self._leaving.set()
        self._thread.join(_PATIENCE)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._leaving.wait(self._interval):
            try:
                self._looks.put(run_inline(survey(self._engine)))
            except FairleadError as error:
                self._looks.put(error)
            self._tell()


def watch(engine: Facade, store: str, first: Survey, interval: float) -> None:
    """Show how things stand until the user quits; raises KeyboardInterrupt for Ctrl-C."""
    view = first_view(store, span_of("interval", interval), first, _now())
    with Screen() as screen:
        watcher = TopWatcher(engine, interval, screen.wake)
        watcher.start()
        try:
            asked = _show(screen, watcher, view)
        except OSError:
            # The terminal is gone, and the signal that says so is on its way.
            asked = signal.SIGHUP
    if not watcher.leave():
        # A store that hangs must not keep a user waiting who wants to leave; the kernel closes what it held.
        sys.stdout.flush()
        os._exit(0)
    if asked is signal.SIGINT:
        raise KeyboardInterrupt


def _show(screen: Screen, watcher: TopWatcher, view: TopView) -> str | signal.Signals:
    """Draw until something asks to leave: a key or a signal."""
    while True:
        view = watcher.after(view)
        screen.draw(frame(view, _now(), *screen.size))
        for happening in screen.happenings(_TICK):
            if isinstance(happening, signal.Signals) or happening in "qQ":
                return happening


def _now() -> Instant:
    return time.time_ns() // 1000
