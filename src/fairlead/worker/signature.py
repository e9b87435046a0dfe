"""A handler's signature: how a call becomes JSON parameters and parameters become a call again."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.validation import shown
from fairlead.worker.json_form import check_text, odd_number

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_encode: Final = msgspec.json.Encoder().encode


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
        for parameter in self._signature.parameters.values():
            if parameter.kind not in (*_NAMED, inspect.Parameter.VAR_KEYWORD):
                raise InvalidSettings(
                    f"task {function.__qualname__}: parameter {parameter} has no name to be stored under; "
                    f"take a named list instead"
                )

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """A call as a JSON object; raises InvalidTask, with the path, when it does not fit the signature."""
        try:
            # What most calls look like needs no binding, which is slow.
            simple = not kwargs and len(args) in self._counts
            arguments = self._arguments(*args) if simple else self._bound(args, kwargs)
            parameters = _encode(arguments)
            if (odd := odd_number(arguments, parameters)) is not None:
                raise ValueError(f"{odd[1]} is not a number that JSON has - at `{odd[0]}`")
            check_text(parameters)
            if self._rest is None:
                self._decoder.decode(parameters)
            else:
                self._values(parameters)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise InvalidTask("parameters", f"{self._name}() cannot be called like this: {error}") from None
        return parameters

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, in the order of the signature; raises TypeError when they do not fit it."""
        arguments = dict(self._signature.bind(*args, **kwargs).arguments)
        if self._rest is not None:
            arguments |= arguments.pop(self._rest, {})
        return arguments

    def decode(self, parameters: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object; raises InvalidTask, with the path, when they do not fit."""
        try:
            return asdict(self._read(parameters)) if self._is_plain else self._values(parameters)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidTask("parameters", f"parameters do not fit {self._name}(): {error}") from None

    encode_result: Callable[[Any], bytes] = staticmethod(_encode)
    """What a handler returned, as JSON; raises TypeError when it has no JSON form."""

    def decode_result(self, result: bytes | None) -> Any:
        """What a handler returned, as its annotation says."""
        return None if result is None else self._result_decoder.decode(result)

    def check(self) -> None:
        """Resolve the annotations now; raises InvalidSettings when one cannot be used."""
        _ = self._decoder, self._rest_decoder, self._result_decoder

    def _values(self, parameters: bytes) -> dict[str, Any]:
        values = asdict(self._decoder.decode(parameters))
        if self._optional:
            values = {name: value for name, value in values.items() if value is not UNSET}
        if self._rest is not None:
            further = _decode_raw(parameters)
            values |= {name: self._further(name, further[name]) for name in further.keys() - set(self._fields)}
        return values

    def _further(self, name: str, value: msgspec.Raw) -> Any:
        """A value for the `**` parameter."""
        try:
            return self._rest_decoder.decode(value)
        except msgspec.ValidationError as error:
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
        return self._rest is None and not self._optional

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
        # A parameter that is left out stays unset, so that the function's own default is used, as in any call.
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
            (name, self._hints.get(name, Any))
            if self._signature.parameters[name].default is inspect.Parameter.empty
            else (name, self._hints.get(name, Any) | UnsetType, UNSET)
            for name in self._fields
        ]
        named = not self._counts
        return msgspec.defstruct("Arguments", fields, kw_only=named, forbid_unknown_fields=self._rest is None)

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return self._usable(self._arguments)

    @functools.cached_property
    def _rest_decoder(self) -> msgspec.json.Decoder[Any]:
        return self._usable(Any if self._rest is None else self._hints.get(self._rest, Any))

    @functools.cached_property
    def _result_decoder(self) -> msgspec.json.Decoder[Any]:
        return self._usable(self._hints.get("return", Any))

    def _usable(self, annotation: Any) -> msgspec.json.Decoder[Any]:
        try:
            return msgspec.json.Decoder(annotation)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidSettings(
                f"task {self._name}: an annotation has no JSON form: {error}; annotate it with types that JSON can hold"
            ) from None


_decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
