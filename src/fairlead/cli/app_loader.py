"""Finding the app that MODULE:APP names, and giving it its configuration."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from fairlead.app.app import Fairlead
from fairlead.app.config import Configuration
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.core.settings import Settings
from fairlead.engine.events.types import Observer

log = logging.getLogger("fairlead.cli")

BUILTIN: Final = "builtin"
"""Instead of MODULE:APP: the built-in handlers."""


class AskedToLeave(SystemExit):
    """What a signal ends the program with, in whatever it is just doing."""


def load_app(place: str, configuration: Configuration, observers: tuple[Observer, ...]) -> Fairlead:
    """The app at `module:attribute`, on the configured store; raises InvalidSettings, with near misses, if none is."""
    if place == BUILTIN:
        from fairlead.app.builtin import builtin_app  # It needs email and HTTP, which take 2 MB that others can save.

        return builtin_app(configuration, observers=observers)
    module_name, colon, attribute = place.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidSettings(
            f"{place!r} does not name an app; write MODULE:APP, as in tasks:app for `app = Fairlead(…)` in tasks.py"
        )
    app = _find(_import(module_name), attribute)
    _bind(app, configuration, observers)
    return app


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is this module, or a package on the way to it, that is missing: not what the module imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidSettings(_missing(name, error.name)) from None
        raise InvalidSettings(_broken(name, error)) from None
    except AskedToLeave:
        raise
    except SystemExit as error:
        raise InvalidSettings(
            f"{_broken(name, error)}; put what is to run when it is the program under if __name__ == '__main__'"
        ) from None
    except Exception as error:
        raise InvalidSettings(_broken(name, error)) from None


def _missing(name: str, missing: str) -> str:
    if name.endswith(".py") or "/" in name:
        return f"{name!r} is a file's path; write the module's name, as in {_as_module(name)}:app"
    parent, _, last = missing.rpartition(".")
    folder = sys.modules.get(parent)
    path = getattr(folder, "__path__", None) if parent else [str(Path.cwd())]
    found = {module.name for module in pkgutil.iter_modules(path)}
    near = difflib.get_close_matches(last, found, n=3, cutoff=0.5)
    where = f"in {parent}" if parent else f"in {Path.cwd()} nor among what is installed"
    return f"there is no module {missing!r} {where}{_suggest([f'{parent}.{one}'.lstrip('.') for one in near])}"


def _as_module(name: str) -> str:
    return os.path.normpath(name).removesuffix(".py").strip("./").replace("/", ".")


def _broken(name: str, error: BaseException) -> str:
    """What an import of the user's own code raised, and where in that code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}, line {error.lineno})"
    elif len(frames) > 1:
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    else:
        place = ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"the module {name!r} cannot be imported: {type(error).__name__}: {message}{place}"


def _find(module: ModuleType, attribute: str) -> Fairlead:
    apps = [name for name, value in vars(module).items() if issubclass(type(value), Fairlead)]
    target: object = module
    for part in attribute.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            near = apps or difflib.get_close_matches(part, vars(module), n=3, cutoff=0.5)
            raise InvalidSettings(
                f"the module {module.__name__!r} has no {attribute!r}"
                f"{_suggest([f'{module.__name__}:{name}' for name in near])}"
            ) from None
    if not isinstance(target, Fairlead):
        raise InvalidSettings(
            f"{module.__name__}:{attribute} is not a Fairlead app but {type(target).__name__}"
            f"{_suggest([f'{module.__name__}:{name}' for name in apps])}"
        )
    return target


def _suggest(names: Iterable[str]) -> str:
    listed = " or ".join(names)
    return f"; did you mean {listed}?" if listed else ""


def _bind(app: Fairlead, configuration: Configuration, observers: tuple[Observer, ...]) -> None:
    """Put the app on the configured store.

    A store named by flag, variable or file goes before the one in the code. Settings in the code, being written for
    this app, go before configured ones; an app without any has taken the configured ones by itself.
    """
    origin = configuration.origins.get("store")
    url = app.store if origin is None else configuration.store_url
    if url != app.store:
        log.info("using the store %s from %s; the app itself names %s", masked(url), origin, masked(app.store))
    if configuration.engine_settings() not in (Settings(), app.settings):
        log.warning("the app has its own settings: settings of the configuration that differ from them have no effect")
    journal = app.journal if configuration.journal is None else configuration.journal_url
    app.rebind(url, observers, journal=journal, api_key=configuration.api_key)
