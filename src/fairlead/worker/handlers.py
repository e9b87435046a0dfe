"""Handlers: the functions that run tasks, by task type, and how their calls and results become JSON.

A value may have no JSON form although an encoder wrote one: it writes `null` for a number that is not finite, and what
a `msgspec.Raw` holds as it stands.
"""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.identity import check_name
from fairlead.core.instant import LATEST
from fairlead.core.retry import Reject, derives
from fairlead.core.validation import bad_setting, check_count, check_flag, shown
from fairlead.worker.annotations import NoForm, Read, decoder, is_for_pydantic, json_of, reader
from fairlead.worker.providers import Provider
from fairlead.worker.resources import NO_RESOURCES, Overrides, Resources, wrapped
from fairlead.worker.soft_timeout import with_soft_timeout


class HandlerPlace(enum.Enum):
    """Where a handler runs."""

    LOOP = "loop"
    """On the event loop: `async def`."""
    THREAD = "thread"
    """In a thread: `def`."""
    PROCESS = "process"
    """In a child process that can be killed: `isolate=True`."""


class Handler:
    """One task type and the function that runs it."""

    def __init__(
        self,
        task_type: str,
        function: Callable[..., Any],
        *,
        isolate: bool = False,
        memory_limit: int | None = None,
        soft_timeout: float | None = None,
        retry_on: Iterable[type[BaseException]] = (Exception,),
        reject_on: Iterable[type[BaseException]] = (),
        resources: Resources = NO_RESOURCES,
    ) -> None:
        self.type = check_name("type", task_type)
        if not callable(function):
            raise InvalidSettings(f"task {task_type}: {shown(function)} is not a function; write @app.task above a def")
        check_flag(f"task {task_type}: isolate", isolate, bad_setting)
        if memory_limit is not None:
            check_count(f"task {task_type}: memory_limit", memory_limit, 1, LATEST, bad_setting)
        if memory_limit is not None and not isolate:
            raise InvalidSettings(f"task {task_type}: memory_limit needs a process of its own; add isolate=True")
        self.function = function
        self.signature = Signature(function)
        self.resources = resources
        self._limited = function if soft_timeout is None else with_soft_timeout(function, soft_timeout)
        self.run = self._limited
        """What is called in an attempt: the function, with what surrounds it if anything does."""
        if resources.around or self.signature.providers:
            self.run = wrapped(self._limited, resources.around, self.signature.providers)
        self.is_async = inspect.iscoroutinefunction(function)
        self.memory_limit = memory_limit
        self._retry_on: tuple[type[BaseException], ...] = _errors(f"task {task_type}: retry_on", retry_on)
        self._reject_on: tuple[type[BaseException], ...] = (Reject, *_errors(f"task {task_type}: reject_on", reject_on))
        if isolate:
            self.place = HandlerPlace.PROCESS
        else:
            self.place = HandlerPlace.LOOP if self.is_async else HandlerPlace.THREAD

    def overridden(self, overrides: Overrides) -> Handler:
        """The same handler with other providers; an isolated one that has them runs here, where they are."""
        providers = self.signature.providers
        if not overrides.keys() & {*providers.values(), self.resources.lifespan}:
            return self
        other = copy.copy(self)
        changed = {name: overrides.get(provider, provider) for name, provider in providers.items()}
        if providers:
            other.run = wrapped(self._limited, self.resources.around, changed)
        other.place = HandlerPlace.LOOP if self.is_async else HandlerPlace.THREAD
        return other

    def is_retriable(self, error: BaseException) -> bool:
        """Whether another attempt may help against this error."""
        # By its true type, as an `except` does: `isinstance` asks the error for its class, and may get any answer.
        kind = type(error)
        return derives(kind, *self._retry_on) and not derives(kind, *self._reject_on)


def _errors(name: str, said: object) -> tuple[type[BaseException], ...]:
    """The types of errors that a user names."""
    if isinstance(said, Mapping):
        raise InvalidSettings(
            f"{name} {shown(said)} is a mapping; use retry_rules to say what happens after each error"
        )
    if not isinstance(said, Iterable) or isinstance(said, str | type):
        raise InvalidSettings(f"{name} {shown(said)} is not a list of exception types; write (ValueError,)")
    errors = tuple(said)
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise InvalidSettings(f"{name} has {shown(error)}, which is not an exception type; write (ValueError,)")
    return errors


class Handlers:
    """The handlers of an app, one per task type."""

    def __init__(self, handlers: Iterable[Handler] = (), resources: Resources = NO_RESOURCES) -> None:
        self.resources = resources
        """What they share."""
        self._by_type: dict[str, Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        if handler.type in self._by_type:
            raise InvalidSettings(f"task type {handler.type!r} has a handler already; give one of them another name")
        self._by_type[handler.type] = handler

    def get(self, task_type: str) -> Handler | None:
        return self._by_type.get(task_type)

    def check(self) -> None:
        """Raise InvalidSettings if an annotation of a handler cannot be used."""
        for handler in self._by_type.values():
            handler.signature.check()

    def overridden(self, overrides: Overrides) -> Handlers:
        """The same handlers with other providers, and another lifespan."""
        if not overrides:
            return self
        return Handlers(
            (each.overridden(overrides) for each in self._by_type.values()), self.resources.overridden(overrides)
        )

    @property
    def are_plain(self) -> bool:
        """Whether each is called as it is, with nothing around it and nothing to share."""
        plain = all(handler.run is handler.function for handler in self._by_type.values())
        return plain and self.resources.lifespan is None

    @property
    def types(self) -> frozenset[str]:
        return frozenset(self._by_type)


_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_Field: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]


class Signature:
    """The parameters and the result of a handler, as its annotations say."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        try:
            self._signature = inspect.signature(function)
        except (ValueError, TypeError):
            raise InvalidSettings(
                f"task {shown(function)} has no signature that Python knows; write a def that calls it"
            ) from None
        self._readers: dict[str, Read] = {}
        """How the parameters are read that msgspec does not know; complete once `_arguments` is."""
        self.providers: dict[str, Callable[..., Any]] = {}
        """What fills parameters that are no arguments of the task, by their names."""
        for parameter in self._signature.parameters.values():
            if isinstance(parameter.default, Provider):
                self.providers[parameter.name] = parameter.default.function
            if parameter.kind not in (*_NAMED, inspect.Parameter.VAR_KEYWORD):
                raise InvalidSettings(
                    f"task {function.__qualname__}: parameter {parameter} has no name to be stored under; "
                    f"take a named list instead"
                )
        if self.providers:
            arguments = [each for each in self._signature.parameters.values() if each.name not in self.providers]
            self._signature = self._signature.replace(parameters=arguments)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """A call as a JSON object; raises InvalidTask, with the path, when it does not fit the signature."""
        try:
            # What most calls look like needs no binding, which is slow.
            simple = not kwargs and len(args) in self._counts
            arguments = self._arguments(*args) if simple else self._bound(args, kwargs)
            parameters = json_of(arguments)
            if (odd := odd_number(arguments, parameters)) is not None:
                raise ValueError(f"{odd[1]} is not a number that JSON has - at `{odd[0]}`")
            check_text(parameters)
            if self._is_direct:
                self._read(parameters)
            else:
                self._values(parameters)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise InvalidTask("parameters", f"{self._name}() cannot be called like this: {error}") from None
        return parameters

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, in the order of the signature; raises TypeError when they do not fit it."""
        self._check_names(kwargs.keys())
        arguments = dict(self._signature.bind(*args, **kwargs).arguments)
        if self._rest is not None:
            arguments |= arguments.pop(self._rest, {})
        return arguments

    def decode(self, parameters: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object; raises InvalidTask, with the path, when they do not fit."""
        try:
            return asdict(self._read(parameters)) if self._is_plain else self._values(parameters)
        except InvalidSettings:
            raise
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidTask("parameters", f"parameters do not fit {self._name}(): {error}") from None

    def _check_names(self, names: Iterable[str]) -> None:
        """Raise ValueError if one of these arguments is for a provider to make."""
        for name in self.providers.keys() & set(names):
            raise ValueError(f"{name} is made by {Provider(self.providers[name])} when the task runs; leave it out")

    encode_result: Callable[[Any], bytes] = staticmethod(json_of)
    """What a handler returned, as JSON; raises TypeError when it has no JSON form."""

    def decode_result(self, result: bytes | None) -> Any:
        """What a handler returned, as its annotation says."""
        return None if result is None else self._read_result(result)

    @property
    def schema(self) -> bytes:
        """The JSON schema of the parameters; empty if a type among them has none."""
        try:
            return msgspec.json.encode(msgspec.json.schema(self._arguments, schema_hook=_schema_of))
        except (TypeError, ValueError, RecursionError, InvalidSettings):
            return b""

    def check(self) -> None:
        """Resolve the annotations now; raises InvalidSettings when one cannot be used."""
        _ = self._decoder

    def _values(self, parameters: bytes) -> dict[str, Any]:
        values = asdict(self._decoder.decode(parameters))
        if self._optional:
            values = {name: value for name, value in values.items() if value is not UNSET}
        for name, read in self._readers.items():
            if name in values:
                values[name] = self._located(name, read, values[name])
        if self._rest is not None:
            further = _decode_raw(parameters)
            self._check_names(further)
            unnamed = further.keys() - set(self._fields)
            values |= {name: self._located(name, self._read_further, further[name]) for name in unnamed}
        return values

    def _located(self, name: str, read: Read, value: msgspec.Raw) -> Any:
        """A value that is read by itself; raises ValidationError with the path to what is wrong with it."""
        try:
            return read(bytes(value))
        except ValueError as error:
            complaint, _, path = str(error).partition(" - at `$")
            raise msgspec.ValidationError(f"{complaint} - at `$.{name}{path or '`'}") from None

    @property
    def _name(self) -> str:
        return self._function.__qualname__

    @functools.cached_property
    def _rest(self) -> str | None:
        """The name of the `**` parameter, if there is one."""
        parameters = self._signature.parameters.values()
        return next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD), None)

    @functools.cached_property
    def _fields(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._signature.parameters.values() if each.kind in _NAMED)

    @functools.cached_property
    def _optional(self) -> bool:
        """Whether a parameter may be left out."""
        return any(self._signature.parameters[name].default is not inspect.Parameter.empty for name in self._fields)

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether every parameter has a name of its own, and none may be left out."""
        return self._is_direct and not self._optional

    @functools.cached_property
    def _is_direct(self) -> bool:
        """Whether every parameter has a name of its own, and is read along with the others."""
        _ = self._arguments
        return self._rest is None and not self._readers

    @functools.cached_property
    def _read(self) -> Callable[[bytes], msgspec.Struct]:
        return self._decoder.decode

    @functools.cached_property
    def _counts(self) -> range:
        """How many arguments a call can have that names none of them."""
        named = [self._signature.parameters[name] for name in self._fields]
        required = [each for each in named if each.default is inspect.Parameter.empty]
        if any(each.kind is inspect.Parameter.KEYWORD_ONLY for each in required):
            return range(0)
        positional = [each for each in named if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        return range(len(required), len(positional) + 1)

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved at first use: an annotation may name a type that is defined further down its module.
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except Exception as error:
            # An annotation that is a text is evaluated, so anything may come of it.
            raise InvalidSettings(
                f"task {self._name}: {error}; annotations must name types that its module defines or imports"
            ) from None

    @functools.cached_property
    def _arguments(self) -> Callable[..., msgspec.Struct]:
        """The arguments as a struct; made by position, where a call that names none of them is possible."""
        # Whatever there is to refuse of the signature is refused at its first use.
        _ = self._read_further, self._read_result
        fields = [self._field(name) for name in self._fields]
        named = not self._counts
        return msgspec.defstruct("Arguments", fields, kw_only=named, forbid_unknown_fields=self._rest is None)

    def _field(self, name: str) -> _Field:
        """A parameter as a field; raises InvalidSettings if its annotation has no JSON form."""
        annotation = self._hints.get(name, Any)
        read = self._reader(f"parameter {name}", annotation)
        if is_for_pydantic(annotation):
            self._readers[name] = read
            annotation = msgspec.Raw
        if self._signature.parameters[name].default is inspect.Parameter.empty:
            return name, annotation
        # A parameter that is left out stays unset, so that the function's own default is used, as in any call.
        return name, annotation | UnsetType, UNSET

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return decoder(self._arguments)

    @functools.cached_property
    def _read_further(self) -> Read:
        annotation = Any if self._rest is None else self._hints.get(self._rest, Any)
        return self._reader(f"parameter {self._rest}", annotation)

    @functools.cached_property
    def _read_result(self) -> Read:
        return self._reader("its result", self._hints.get("return", Any))

    def _reader(self, what: str, annotation: Any) -> Read:
        try:
            return reader(annotation)
        except NoForm as error:
            raise InvalidSettings(f"task {self._name}: {what}: {error}") from None


_decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_NULL: Final = b"null"
_skim: Final = msgspec.json.Decoder(msgspec.Raw).decode


def check_syntax(encoded: bytes) -> None:
    """Raise ValueError for what is not JSON throughout, as something raw may make it."""
    _skim(encoded)
    check_text(encoded)


def check_text(encoded: bytes) -> None:
    """Raise ValueError for what is no text, which a decoder passes over where the value is to stay raw."""
    if not encoded.isascii():
        str(encoded, "utf-8")


def odd_number(value: object, encoded: bytes) -> tuple[str, float] | None:
    """The path to a number of a value that is infinite or none at all, and that number."""
    # Where the encoder wrote no `null` there is none, and next to nothing to pay: `in` would first try it as a number.
    if encoded.find(_NULL) < 0 or not _holds_odd_number(value):
        return None
    waiting = [("$", value)]
    while waiting:
        path, value = waiting.pop()
        if _is_odd(value):
            return path, value
        waiting += [(path + step, child) for step, child in children(value)]
    return None


def children(value: Any) -> Iterator[tuple[str, object]]:
    """What a value is made of, each with its step on a path; past what its class may have overridden."""
    kind = type(value)
    if issubclass(kind, enum.Enum):
        # A member is written as its value.
        yield "", value.value
    elif issubclass(kind, dict):
        yield from ((f".{_key(key)}", child) for key, child in dict.items(value))
    elif (names := _field_names(kind)) is not None:
        yield from ((f".{name}", getattr(value, name, None)) for name in names)
    else:
        known = next((each for each in (list, tuple, set, frozenset) if issubclass(kind, each)), None)
        if known is not None:
            yield from ((f"[{position}]", child) for position, child in enumerate(known.__iter__(value)))


def _holds_odd_number(value: object) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting += value.values()  # type: ignore[attr-defined]
        elif kind is list or kind is tuple:
            waiting += value  # type: ignore[arg-type]
        elif _is_odd(value):
            return True
        else:
            waiting += [child for _, child in children(value)]
    return False


def _is_odd(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and not math.isfinite(value)


def _field_names(kind: Any) -> list[str] | None:
    """The names of the fields of a class that is made of such."""
    if issubclass(kind, Struct):
        return list(kind.__struct_fields__)
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    if (model := getattr(kind, "__pydantic_fields__", None)) is not None:
        return list(model)
    # Those of attrs, which is not imported for this.
    declared = getattr(kind, "__attrs_attrs__", None)
    return None if declared is None else [each.name for each in declared]


def _key(key: object) -> str:
    """A key as it is told: its beginning, if it is text."""
    return str.__getitem__(key, slice(50)) if isinstance(key, str) else f"({type(key).__name__})"


def _schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type that the encoder does not know: a model's own, or that of anything."""
    own = getattr(kind, "model_json_schema", None)
    if callable(own):
        schema: dict[str, Any] = own()
        return schema
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    # Not empty, which would be taken for none.
    return {"title": getattr(kind, "__name__", "Any")}
