"""The program: its commands by name, and what becomes of their errors.

Exit codes: 0 it is done, 1 what was asked for failed or was not found, 2 it was asked for wrongly, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError, Group, Parameter

from fairlead._version import __version__
from fairlead.cli.output import complain
from fairlead.core.errors import FairleadError, InvalidSettings, InvalidTask, QueryError

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

RUNNING: Final = Group.create_ordered("Running")
TASKS: Final = Group.create_ordered("Tasks")
OPERATING: Final = Group.create_ordered("Queues and workers")
STORE: Final = Group.create_ordered("Store")
ABOUT: Final = Group.create_ordered("About")

COMMANDS: Final = {
    "up": (RUNNING, "fairlead.cli.up:up"),
    "worker": (RUNNING, "fairlead.cli.working:worker"),
    "serve": (RUNNING, "fairlead.cli.serving:serve"),
    "keys": (RUNNING, "fairlead.cli.keys:keys"),
    "submit": (TASKS, "fairlead.cli.submitting:submit"),
    "show": (TASKS, "fairlead.cli.looking:show"),
    "explain": (TASKS, "fairlead.cli.explaining:explain"),
    "watch": (TASKS, "fairlead.cli.following:watch"),
    "list": (TASKS, "fairlead.cli.looking:list_tasks"),
    "stats": (TASKS, "fairlead.cli.looking:stats"),
    "top": (OPERATING, "fairlead.cli.top:top"),
    "queues": (OPERATING, "fairlead.cli.queues:queues"),
    "circuits": (OPERATING, "fairlead.cli.circuits:circuits"),
    "workers": (OPERATING, "fairlead.cli.workers:workers"),
    "autoscale": (OPERATING, "fairlead.cli.scaling:autoscale"),
    "cancel": (TASKS, "fairlead.cli.acting:cancel"),
    "prioritize": (TASKS, "fairlead.cli.acting:prioritize"),
    "replay": (TASKS, "fairlead.cli.acting:replay"),
    "discard": (TASKS, "fairlead.cli.acting:discard"),
    "dlq": (TASKS, "fairlead.cli.dead_letters:dlq"),
    "operations": (TASKS, "fairlead.cli.operations:operations"),
    "schedule": (TASKS, "fairlead.cli.schedules:schedule"),
    "rebuild": (STORE, "fairlead.cli.rebuilding:rebuild"),
    "migrate": (STORE, "fairlead.cli.migrating:migrate"),
    "doctor": (STORE, "fairlead.cli.doctor:doctor"),
    "config": (ABOUT, "fairlead.cli.about:config"),
    "version": (ABOUT, "fairlead.cli.about:version"),
}
"""Every command: its group in the help, and its function, which is imported when it is needed."""


def program(*, wanted: str | None = None) -> App:
    """The program, ready to be called with its arguments; if only one command is wanted, the others stay names."""
    app = App(
        name="fairlead",
        help="A priority task queue that never starves a task, never loses one, and can say why each one waits.",
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        group_commands=ABOUT,
        help_format="markdown",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, (group, place) in COMMANDS.items():
        app.command(place, name=name, group=group, sort_key=list(COMMANDS).index(name))
    if wanted not in COMMANDS:
        for name in COMMANDS:
            # Its first line of help is known only when it is imported.
            app[name]
    return app


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; the exit code."""
    try:
        code = program(wanted=next(iter(arguments), None))(list(arguments))
        sys.stdout.flush()
    except QueryError as error:
        complain(str(error), as_json="--json" in arguments, pointer=error.pointer)
        return MISUSED
    except (CycloptsError, InvalidTask, InvalidSettings) as error:
        complain(str(error), as_json="--json" in arguments)
        return MISUSED
    except BrokenPipeError:
        # Whoever read the output has heard enough; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (FairleadError, TimeoutError) as error:
        complain(str(error), as_json="--json" in arguments)
        return FAILED
    except KeyboardInterrupt:
        complain("interrupted", as_json="--json" in arguments)
        return INTERRUPTED
    return code if isinstance(code, int) else OK
