"""`check`: whether an app can do what it declares, before a worker of it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from fairlead.app.app import Fairlead
from fairlead.cli.app_loader import BUILTIN, load_app
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import complain, write, write_json
from fairlead.core.errors import FairleadError
from fairlead.worker.handlers import Handler, HandlerPlace
from fairlead.worker.isolation.pool import location


def check(
    place: Annotated[
        str,
        Parameter(
            name="MODULE:APP",
            help=f"The app: `tasks:app` for `app = Fairlead(…)` in tasks.py; `{BUILTIN}` for the built-in handlers.",
        ),
    ],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Check the declarations of an app: its task types, their parameters and results, and its schedules.

    It imports the app as a worker does, opens no store and runs nothing. Every fault is told, and the exit code is 1 if
    there is one: for a pipeline, before a deploy.
    """
    app = load_app(place, configured(common, {}), ())
    faults = list(faults_of(app))
    if common.json:
        types, schedules = sorted(app.handlers.types), sorted(app.schedules.declared)
        write_json({"app": place, "types": types, "schedules": schedules, "faults": faults})
    elif faults:
        for fault in faults:
            complain(fault, as_json=False)
    else:
        write(f"{place} is well: {_counted(app)}")
    return 1 if faults else 0


def faults_of(app: Fairlead) -> Iterator[str]:
    """What is wrong with the declarations of an app, a sentence for each."""
    for task_type in sorted(app.handlers.types):
        handler = app.handlers.get(task_type)
        if handler is None:
            continue
        for look in (lambda each: each.signature.check(), _check_isolated):
            try:
                look(handler)
            except FairleadError as error:
                yield str(error)
    for schedule in app.schedules.declared.values():
        handler = app.handlers.get(schedule.submission.type)
        try:
            if handler is not None:
                handler.signature.decode(schedule.submission.parameters)
        except FairleadError as error:
            yield f"schedule {schedule.name}: {error}"


def _check_isolated(handler: Handler) -> None:
    """Raise InvalidSettings if the process of an isolated handler would not find it by its name."""
    if handler.place is not HandlerPlace.PROCESS:
        return
    module, name = location(handler)
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is not handler.function and getattr(target, "handler", None) is not handler:
        raise FairleadError(
            f"task {handler.type}: an isolated handler is found by its name in another process, and {module}.{name} is "
            f"something else; leave the name to the task"
        )


def _counted(app: Fairlead) -> str:
    types, schedules = len(app.handlers.types), len(app.schedules.declared)
    return f"{types} task type{'' if types == 1 else 's'}, {schedules} schedule{'' if schedules == 1 else 's'}"
