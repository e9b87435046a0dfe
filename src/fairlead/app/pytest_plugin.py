"""Fixtures for pytest, which finds them by an entry point: of fairlead nothing else is imported until one is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fairlead.app.app import Fairlead
    from fairlead.app.testing import Rehearsal

_OPTION = "fairlead_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have the app named in pytest's own configuration."""
    parser.addini(_OPTION, "the app whose tasks the fixture `rehearsal` runs, as MODULE:APP", default="")


@pytest.fixture
def fairlead_app(request: pytest.FixtureRequest) -> Fairlead:
    """The app that `rehearsal` is of: the one that the option `fairlead_app` names, unless a test overrides this."""
    import importlib

    from fairlead.app.app import Fairlead

    place = request.config.getini(_OPTION)
    module, _, attribute = place.partition(":")
    if not module or not attribute:
        raise pytest.UsageError(
            f"{_OPTION} {place!r} names no app; write MODULE:APP in pytest's configuration, or override the fixture "
            f"fairlead_app"
        )
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, Fairlead):
        raise pytest.UsageError(f"{_OPTION} {place} is not a Fairlead app but {type(found).__name__}")
    return found


@pytest.fixture
def fairlead_overrides() -> Mapping[Any, Any]:
    """What `rehearsal` puts in place of providers and of the lifespan: nothing, unless a test overrides this."""
    return {}


@pytest.fixture
def rehearsal(fairlead_app: Fairlead, fairlead_overrides: Mapping[Any, Any]) -> Iterator[Rehearsal]:
    """Submits of the app go to memory until the test ends, and its tasks run when the test says so."""
    with fairlead_app.testing(overrides=fairlead_overrides) as rehearsal:
        yield rehearsal
