#!/usr/bin/env python
"""Writes what operators do from Python, from the services that do it: admin.py and admin_parts.py in src/fairlead/app.

    python scripts/app_admin.py

A part of an app, such as `app.queues`, has two kinds of operations: its requests (`fairlead.app.requests`), whose
parameters or answers are other than the engine's, and whatever else a service and its remote twin have in common. Each
is written for asynchronous and for synchronous code.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairlead.admin.circuits.api import RemoteCircuits
from fairlead.admin.circuits.service import Circuits
from fairlead.admin.engine import AdminEngine
from fairlead.admin.operations.api import RemoteOperations
from fairlead.admin.operations.service import Operations
from fairlead.admin.quarantine.api import RemoteQuarantine
from fairlead.admin.quarantine.service import QuarantineRecords
from fairlead.admin.queues.api import RemoteQueues
from fairlead.admin.queues.service import Queues
from fairlead.admin.schedules.api import RemoteSchedules
from fairlead.admin.schedules.service import Schedules
from fairlead.admin.tenants.api import RemoteTenants
from fairlead.admin.tenants.service import Tenants
from fairlead.admin.types.api import RemoteTypes
from fairlead.admin.types.service import Types
from fairlead.admin.workers.api import RemoteWorkers
from fairlead.admin.workers.service import Workers
from fairlead.app import requests
from fairlead.app.connection import DeclaringPart, EngineRequests, Link, Part
from fairlead.core.circuit import CircuitSettings
from fairlead.core.schedule import Schedule
from fairlead.engine.runtime.inline import run_inline

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "src" / "fairlead" / "app" / "admin.py"
INDEX: Final = FILE.with_name("admin_parts.py")


class Service(NamedTuple):
    """A service over an engine, and what is the same behind a server."""

    local: type
    remote: type


@dataclass(frozen=True, kw_only=True, eq=False)
class AppPart:
    """A part of an app, reached as its attribute of this name."""

    name: str
    summary: str
    requests: type[EngineRequests] | None = None
    service: Service | None = None
    """What an engine has as the attribute of the same name."""
    hidden: Collection[str] = ()
    """Operations of the service that are for workers, declarations and the command line."""
    declares: type | None = None
    """What programs declare of it, beside what people set."""

    @property
    def kind(self) -> str:
        """The name of its class, such as AppDeadLetters."""
        return f"App{''.join(map(str.capitalize, self.name.split('_')))}"

    @property
    def head(self) -> str:
        base = "Part" if self.declares is None else f"DeclaringPart[{self.declares.__name__}]"
        return f"class {self.kind}({base}):\n{_quoted(self.summary, 4)}"


PARTS: Final = (
    AppPart(
        name="tasks",
        summary="The tasks of an app, whoever submitted them: to search, cancel, replay and discard.",
        requests=requests.TaskRequests,
    ),
    AppPart(
        name="dead_letters",
        summary="The tasks of an app whose retries are used up: to search and to group by error.",
        requests=requests.DeadLetterRequests,
    ),
    AppPart(
        name="operations",
        summary="Actions on all tasks that a query means: to preview, start, follow, pause, resume and cancel.",
        requests=requests.OperationRequests,
        service=Service(Operations, RemoteOperations),
        hidden=["step"],
    ),
    AppPart(
        name="queues",
        summary="The queues of an app: to pause, resume, change and purge; changes apply everywhere within a second.",
        requests=requests.QueueRequests,
        service=Service(Queues, RemoteQueues),
    ),
    AppPart(
        name="tenants",
        summary="Who shares queues by fair keys, such as tenants: what waits and runs of each, its part of the turns.",
        service=Service(Tenants, RemoteTenants),
    ),
    AppPart(
        name="workers",
        summary="The workers of an app, wherever they run: to look at, to pause and to drain.",
        requests=requests.WorkerRequests,
        service=Service(Workers, RemoteWorkers),
    ),
    AppPart(
        name="types",
        summary="The task types that workers have published, with the options and the parameters of each.",
        service=Service(Types, RemoteTypes),
        hidden=["declare"],
    ),
    AppPart(
        name="quarantine",
        summary="Records in quarantine, which cannot be decoded: to show, restore and discard.",
        service=Service(QuarantineRecords, RemoteQuarantine),
    ),
    AppPart(
        name="schedules",
        summary="The schedules of an app, declared by `cron` or not: to add, pause, resume, run and remove.",
        requests=requests.ScheduleRequests,
        service=Service(Schedules, RemoteSchedules),
        hidden=["put", "declare"],
        declares=Schedule,
    ),
    AppPart(
        name="circuits",
        summary="The circuits of an app's task types, declared by `task` or not: to set, open, close and remove.",
        service=Service(Circuits, RemoteCircuits),
        hidden=["find", "declare"],
        declares=CircuitSettings,
    ),
)

OVERVIEW: Final = ("stats", "diagnose")
"""What an app passes on to the engine itself."""

_HEAD: Final = '''\
# Generated by `python scripts/app_admin.py`: change what it is made of, not this file.
"""What those who operate an app ask of it, from asynchronous and from synchronous code."""

from __future__ import annotations

'''
_INDEX_HEAD: Final = '''\
# Generated by `python scripts/app_admin.py`: change what it is made of, not this file.
"""An app as those who operate it see it. Each part is imported when it is first asked for: a worker needs none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING
'''
_APP: Final = '''
class Operated(Part):
    """An app as those who operate it see it."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        super().__init__(connect)
'''


def module() -> str:
    """The parts, as `make format` leaves them."""
    made = {part: [*operations(part)] for part in PARTS}
    named = [each for part in PARTS for each in (part.requests, part.declares) if each is not None]
    used: list[Any] = [*named, Part, DeclaringPart, run_inline]
    imports = {_import(each.__module__, each.__name__) for each in used}
    for operation in itertools.chain(*made.values()):
        imports.update(operation.imports())
    return _formatted("\n".join([_HEAD, *sorted(imports), *(_class(part.head, own) for part, own in made.items())]))


def index() -> str:
    """What an app has of each part, as `make format` leaves it."""
    overview = [
        ForwardedMethod(vars(AdminEngine)[name], "(await self._engine())", "self._inline()") for name in OVERVIEW
    ]
    imports = {_import(each.__module__, each.__name__) for each in (Part, Link, run_inline)}
    types = {_import("fairlead.app.admin", part.kind) for part in PARTS}
    types |= {_import(part.declares.__module__, part.declares.__name__) for part in PARTS if part.declares is not None}
    types.update(itertools.chain(*(each.imports() for each in overview)))
    declared = "".join(
        f"        self._declared_{part.name}: dict[str, {part.declares.__name__}] = {{}}\n"
        for part in PARTS
        if part.declares is not None
    )
    typed = textwrap.indent("\n".join(sorted(types)), "    ")
    reached = [_reached(part) for part in PARTS]
    head = [_INDEX_HEAD, *sorted(imports), "if TYPE_CHECKING:", typed, _APP + declared]
    return _formatted("\n".join([*head, *reached, *(each.twins() for each in overview)]))


def _reached(part: AppPart) -> str:
    """The attribute by which an app reaches a part of it."""
    declared = "" if part.declares is None else f", self._declared_{part.name}"
    return (
        f"    @functools.cached_property\n    def {part.name}(self) -> {part.kind}:\n{_quoted(part.summary)}"
        f"        from fairlead.app.admin import {part.kind}\n\n"
        f"        return {part.kind}(self._connect{declared})\n"
    )


def operations(part: AppPart) -> Iterator[ForwardedMethod]:
    """What a part asks in words of its own, then what else a service and its remote twin have in common."""
    own = {} if part.requests is None else methods(part.requests)
    for function in own.values():
        kind = function.__qualname__.partition(".")[0]
        yield ForwardedMethod(function, f"(await self._requests({kind}))", f"self._requests_inline({kind})")
    if part.service is not None:
        local, remote = map(methods, part.service)
        for name in [each for each in local if each in remote and each not in own and each not in part.hidden]:
            known = inspect.signature(remote[name]).parameters
            yield ForwardedMethod(
                local[name], f"(await self._engine()).{part.name}", f"self._inline().{part.name}", known=known
            )


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The public coroutine methods of a class, in their order."""
    return {
        name: member
        for name, member in vars(kind).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    }


class ForwardedMethod:
    """A coroutine method as it is written where the work is done, and how an app passes it on to there."""

    def __init__(
        self, function: Callable[..., Any], awaited: str, inline: str, known: Collection[str] | None = None
    ) -> None:
        """`awaited` and `inline` are what has the method; of its parameters only those are taken that are `known`."""
        self._function = function
        self._awaited, self._inline = awaited, inline
        signature = inspect.signature(function)
        self._returned = signature.return_annotation
        self._parameters = [
            each for each in [*signature.parameters.values()][1:] if known is None or each.name in known
        ]

    def imports(self) -> Iterator[str]:
        """The imports of all that its signature names."""
        for annotation in (*(each.annotation for each in self._parameters), self._returned):
            for node in ast.walk(ast.parse(annotation)):
                if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                    yield _import(_homes(self._function.__module__)[node.id], node.id)

    def twins(self) -> str:
        """The method for asynchronous and the one for synchronous code."""
        name = self._function.__name__
        call = f"{name}({', '.join(map(_passed, self._parameters))})"
        answer = "" if self._returned == "None" else "return "
        return (
            f"    async def {name}{self._signature()}:\n{_quoted(inspect.getdoc(self._function) or '')}"
            f"        {answer}await {self._awaited}.{call}\n\n"
            f"    def {name}_sync{self._signature()}:\n{_quoted(f'`{name}`, from synchronous code.')}"
            f"        {answer}run_inline({self._inline}.{call})\n"
        )

    def _signature(self) -> Signature:
        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        written = [each.replace(annotation=_Verbatim(each.annotation)) for each in self._parameters]
        return Signature([own, *written], return_annotation=_Verbatim(self._returned))


class _Verbatim(str):
    """An annotation that a signature shows as it was written, without quotes."""

    __slots__ = ()

    __repr__ = str.__str__


def _passed(parameter: Parameter) -> str:
    """A parameter, as it is passed on."""
    match parameter.kind:
        case Parameter.KEYWORD_ONLY:
            return f"{parameter.name}={parameter.name}"
        case Parameter.VAR_KEYWORD:
            return f"**{parameter.name}"
        case _:
            return parameter.name


@functools.cache
def _homes(module: str) -> dict[str, str]:
    """Where the names come from that a module imports, if only for its types, or defines."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    homes = dict.fromkeys(vars(sys.modules[module]), module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            homes |= {each.name: node.module for each in node.names}
    return homes


def _import(module: str, name: str) -> str:
    return f"from {module} import {name}"


def _class(head: str, methods: Iterable[ForwardedMethod]) -> str:
    return "\n".join([head, *(operation.twins() for operation in methods)])


def _quoted(text: str, indent: int = 8) -> str:
    """A docstring, by default that of a method."""
    ending = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{ending}"""\n', " " * indent)


def _formatted(code: str) -> str:
    """Code as `make format` leaves it."""
    for command in (["check", "--fix-only", "--select=I"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(FILE), "-"]
        code = subprocess.run(ruff, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


if __name__ == "__main__":
    FILE.write_text(module(), encoding="utf-8")
    INDEX.write_text(index(), encoding="utf-8")
