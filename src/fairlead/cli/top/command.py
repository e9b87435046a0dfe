"""`top`: everything at a glance, again and again."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final

from cyclopts import Parameter

from fairlead.cli import task_json
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import console, on_terminal, write_json, write_styled
from fairlead.cli.top.survey import Survey, survey, survey_shown
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.engine.runtime.inline import run_inline

_SHORTEST: Final = 0.1
_LONGEST: Final = 3600.0


def top(
    *,
    once: Annotated[bool, Parameter(help="Show everything once and end, for scripts; with all rows.")] = False,
    interval: Annotated[float, Parameter(help="Seconds between two updates; 2 by default.", metavar="S")] = 2.0,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show a live overview: queues, throughput, workers, the longest-running tasks and the newest errors.

    `q` quits. While the store cannot be reached, the last figures stay, with a line that says so. The tasks that run
    longest are found among the 200 running ones that were submitted first, and errors among the 200 failed tasks and
    dead letters that were submitted last.
    """
    if not _SHORTEST <= interval <= _LONGEST:
        raise InvalidSettings(f"--interval {interval:g} is out of range; use {_SHORTEST:g} to {_LONGEST:g} seconds")
    if not once:
        _check_terminal(as_json=common.json)
    with reached(common) as connection:
        engine = connection.inline()
        seen = run_inline(survey(engine))
        if common.json:
            write_json(survey_shown(seen, lambda task: task_json.brief(task, engine)))
        elif once:
            _write(masked(connection.url), seen)
        else:
            # A system without such terminals has been refused already.
            from fairlead.cli.top.watcher import watch

            watch(engine, masked(connection.url), seen, interval)


def _check_terminal(*, as_json: bool) -> None:
    if as_json:
        raise InvalidSettings("--json needs --once: a live view is not one JSON document")
    if not (sys.stdin.isatty() and on_terminal()):
        raise InvalidSettings("top needs a terminal to draw on and to read keys from; use --once elsewhere")
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or sys.platform == "win32":
        raise InvalidSettings("this terminal cannot show a picture in place; use --once, or set TERM to what it is")


def _write(store: str, seen: Survey) -> None:
    from fairlead.cli.top.view import whole

    screen = console() if on_terminal() else None
    for line in whole(store, seen, None if screen is None else screen.width):
        write_styled(line, screen)
