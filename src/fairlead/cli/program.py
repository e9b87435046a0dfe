"""The program: its commands by name, and what becomes of their errors.

Exit codes: 0 it is done, 1 what was asked for failed or was not found, 2 it was asked for wrongly, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CoercionError, CycloptsError, Group, UnknownOptionError

from fairlead._version import __version__
from fairlead.cli.options import PLAIN, switched_on
from fairlead.cli.output import complain
from fairlead.core import extras
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
    "up": (RUNNING, "fairlead.cli.commands.serve:up"),
    "worker": (RUNNING, "fairlead.cli.commands.worker:worker"),
    "check": (RUNNING, "fairlead.cli.commands.check:check"),
    "serve": (RUNNING, "fairlead.cli.commands.serve:serve"),
    "keys": (RUNNING, "fairlead.cli.commands.keys:keys"),
    "submit": (TASKS, "fairlead.cli.commands.submit:submit"),
    "show": (TASKS, "fairlead.cli.commands.show:show"),
    "explain": (TASKS, "fairlead.cli.commands.show:explain"),
    "watch": (TASKS, "fairlead.cli.commands.watch:watch"),
    "list": (TASKS, "fairlead.cli.commands.show:list_tasks"),
    "stats": (TASKS, "fairlead.cli.commands.show:stats"),
    "top": (OPERATING, "fairlead.cli.commands.top:top"),
    "queues": (OPERATING, "fairlead.cli.commands.queues:queues"),
    "types": (OPERATING, "fairlead.cli.commands.types:types"),
    "circuits": (OPERATING, "fairlead.cli.commands.circuits:circuits"),
    "workers": (OPERATING, "fairlead.cli.commands.workers:workers"),
    "autoscale": (OPERATING, "fairlead.cli.commands.workers:autoscale"),
    "cancel": (TASKS, "fairlead.cli.commands.change:cancel"),
    "prioritize": (TASKS, "fairlead.cli.commands.change:prioritize"),
    "replay": (TASKS, "fairlead.cli.commands.change:replay"),
    "discard": (TASKS, "fairlead.cli.commands.change:discard"),
    "dlq": (TASKS, "fairlead.cli.commands.change:dlq"),
    "operations": (TASKS, "fairlead.cli.commands.operations:operations"),
    "schedule": (TASKS, "fairlead.cli.commands.schedules:schedule"),
    "quarantine": (STORE, "fairlead.cli.commands.quarantine:quarantine"),
    "rebuild": (STORE, "fairlead.cli.commands.store:rebuild"),
    "migrate": (STORE, "fairlead.cli.commands.store:migrate"),
    "doctor": (STORE, "fairlead.cli.commands.store:doctor"),
    "config": (ABOUT, "fairlead.cli.commands.about:config"),
    "version": (ABOUT, "fairlead.cli.commands.about:version"),
}
"""Every command: its group in the help, and its function, which is imported when it is needed."""


RENAMED: Final = {
    ("submit", "--timeout-seconds"): "--wait-timeout",
    ("list", "--after"): "--cursor",
    ("dlq", "--after"): "--cursor",
    ("workers", "--host"): "--on-host",
    ("keys", "--rate"): "--rate-limit",
    ("keys", "--expires"): "--expires-at",
    **{(command, "--rate"): "--max-rate" for command in ("cancel", "prioritize", "replay", "discard", "dlq")},
}
"""What options are called now that had another name in a command."""


def program(*, wanted: str | None = None) -> App:
    """The program, ready to be called with its arguments; if only one command is wanted, the others stay names."""
    app = App(
        name="fairlead",
        help="A priority task queue that never starves a task, never loses one, and can say why each one waits.",
        version=__version__,
        default_parameter=PLAIN,
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
        code = program(wanted=next(iter(arguments), None))(switched_on(arguments))
        sys.stdout.flush()
    except QueryError as error:
        complain(str(error), as_json="--json" in arguments, pointer=error.pointer)
        return MISUSED
    except UnknownOptionError as error:
        complain(_unknown(error, arguments[0]), as_json="--json" in arguments)
        return MISUSED
    except CoercionError as error:
        complain(_misread(error), as_json="--json" in arguments)
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
    except ModuleNotFoundError as error:
        if (told := extras.told(error, "this")) is None:
            raise
        complain(told, as_json="--json" in arguments)
        return MISUSED
    except KeyboardInterrupt:
        complain("interrupted", as_json="--json" in arguments)
        return INTERRUPTED
    return code if isinstance(code, int) else OK


def _unknown(error: UnknownOptionError, command: str) -> str:
    """What is said of an option that is not there: what it is called now, if it had another name."""
    option, _, _ = (error.token.keyword or error.token.value).partition("=")
    renamed = RENAMED.get((command, option))
    return str(error) if renamed is None else f"Unknown option: {option}. It is called {renamed} now."


def _misread(error: CoercionError) -> str:
    """What is said of a value that is not of its option's type."""
    if error.token is None or error.target_type is not float:
        return str(error)
    return f"Invalid value for {error.token.keyword}: {error.token.value!r} is not a number; use one such as 90 or 2.5"
