"""Tasks by the names of their types and by their ids: for programs that do not import the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import msgspec
from msgspec.structs import replace

from fairlead.admin.facade import Facade
from fairlead.app.admin_parts import Operated
from fairlead.app.connection import Link
from fairlead.app.handle import Results, TaskHandle, known_id
from fairlead.app.task_type import Options, TaskDefinition, named, running_loop, warn_in_loop, warn_of
from fairlead.core.errors import InvalidTask, StoreMismatch, StoreRefused
from fairlead.core.identity import check_name
from fairlead.core.submission import Submission
from fairlead.core.validation import shown
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.handlers import Handlers, check_text, odd_number
from fairlead.worker.resources import Resources

log = Logger("fairlead.worker")


class Producer(Operated):
    """The side of an app that submits and looks tasks up by name and by id."""

    def __init__(self, connect: Callable[[], Link], resources: Resources) -> None:
        super().__init__(connect)
        self.handlers = Handlers(resources=resources)
        self._definitions: dict[str, TaskDefinition[..., Any]] = {}

    def handle(self, task_id: str) -> TaskHandle[Any]:
        """A task by its id, which a program has kept; nothing is looked up yet.

        Raises TaskNotFound for a text that no task can have as its id.
        """
        return TaskHandle(known_id(task_id), self._connect(), Results(self.handlers))

    async def submit(
        self, task_type: str, parameters: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> TaskHandle[Any]:
        """Submit a task by the name of its type: `submit("bill", {"order_id": 17}, priority="high")`.

        A type that this app declares is called with the parameters, and has the options of its declaration unless they
        are given here. Of any other type the parameters are stored as they are, and the options are those that its
        workers have published.
        """
        definition, submission = self._named(task_type, parameters, options)
        return await self._submit(await self._connect().engine(), definition, submission)

    def submit_sync(
        self, task_type: str, parameters: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> TaskHandle[Any]:
        """`submit`, from synchronous code."""
        if running_loop() is not None:
            warn_in_loop(check_name("type", task_type))
        definition, submission = self._named(task_type, parameters, options)
        return run_inline(self._submit(self._connect().inline(), definition, submission))

    async def _submit(
        self, engine: Facade, definition: TaskDefinition[..., Any] | None, submission: Submission
    ) -> TaskHandle[Any]:
        submitted = await engine.submit(self.handlers.resources.submitted(submission))
        warn_of(submission.type, await engine.doubts(submitted))
        if definition is not None:
            return definition.held(submitted)
        return TaskHandle(submitted.task, self._connect(), Results(self.handlers), existing=submitted.existing)

    def _named(
        self, task_type: str, parameters: object, options: Options
    ) -> tuple[TaskDefinition[..., Any] | None, Submission]:
        """What is submitted under this name, and its definition if this app has one."""
        definition = self._definitions.get(check_name("type", task_type))
        arguments = _arguments({} if parameters is None else parameters)
        if definition is not None:
            # A function may make the concurrency key of the arguments, so it is a call like any other.
            return definition, definition.options(**options).call(**arguments).submission
        return None, replace(named(task_type, _without_functions(options)), parameters=_encoded(arguments))

    async def _publish(self, engine: Facade, worker: str) -> None:
        """Publish the declared types, for submits by name; a worker whose server will not have it does its work."""
        declarations = [replace(each.declaration, worker=worker) for each in self._definitions.values()]
        try:
            await engine.types.declare(declarations)
        except (InvalidTask, StoreMismatch, StoreRefused) as error:
            log.warning("the task types of this worker are not published: %s", error)


def _arguments(parameters: object) -> dict[str, Any]:
    if not isinstance(parameters, Mapping) or not all(isinstance(name, str) for name in parameters):
        raise InvalidTask(
            "parameters", f"parameters {shown(parameters)} is not a dict by name; write {{'name': value}}"
        )
    return dict(parameters)


def _encoded(arguments: dict[str, Any]) -> bytes:
    try:
        encoded = msgspec.json.encode(arguments)
        check_text(encoded)
        odd = odd_number(arguments, encoded)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidTask("parameters", f"parameters have no JSON form: {error}; use what JSON can hold") from None
    if odd is not None:
        raise InvalidTask("parameters", f"{odd[1]} is not a number that JSON has - at `{odd[0]}`; use another value")
    return encoded


def _without_functions(options: Options) -> Options:
    if callable(options.get("concurrency_key")):
        raise InvalidTask(
            "concurrency_key",
            "concurrency_key is a function, and only the app that declares the type can call it; write the key itself",
        )
    return options
