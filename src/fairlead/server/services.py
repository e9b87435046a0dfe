"""Endpoints that name the method of a service that answers them: these need no handler of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from msgspec import Struct

from fairlead.server.endpoint import Answer, Call, Handler, Served, serve
from fairlead.server.http.path_names import named
from fairlead.wire.endpoint import Endpoint


def called(api: ModuleType) -> tuple[Served[Any, Any], ...]:
    """Those of an API, such as `fairlead.admin.circuits.api`."""
    return tuple(
        serve(each, _handler(name.lower(), each))
        for name, each in vars(api).items()
        if isinstance(each, Endpoint) and each.calls
    )


def _handler(name: str, endpoint: Endpoint[Any, Any]) -> Handler[Any, Any]:
    """What calls the service and shows what it returns."""
    thing, method = endpoint.calls.split(".")

    async def answer(call: Call[Any, Any]) -> Answer:
        values = {each: _value(call, each) for each in endpoint.variables}
        result = await _service(call, thing, method)(*values.values())
        return Answer(_shown(endpoint, values, result, call))

    answer.__name__ = name
    answer.__module__ = f"fairlead.server.routes.{thing}"
    answer.__doc__ = endpoint.about
    return answer


def _service(call: Call[Any, Any], thing: str, method: str) -> Callable[..., Awaitable[Any]]:
    """The method, as it is there for the caller: what nobody has opened to tenants is refused to them."""
    own = getattr(call.view.engine, thing, None)
    found: Callable[..., Awaitable[Any]] = getattr(
        own if hasattr(own, method) else getattr(call.hub.engine, thing), method
    )
    return found


def _value(call: Call[Any, Any], variable: str) -> str:
    """What the path names; the name of a worker may be anything."""
    return call.path[variable] if variable == "worker_id" else named(call, variable)


def _shown(endpoint: Endpoint[Any, Any], values: dict[str, str], result: Any, call: Call[Any, Any]) -> Struct:
    if endpoint.shows is None:
        raise TypeError(f"{endpoint.path} names {endpoint.calls} and does not say how its answer is shown")
    return endpoint.shows(values, result, call.view.now)
