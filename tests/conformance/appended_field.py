"""A build whose `Status` has one field more, at its end: what a later version may be.

Imported before fairlead, it appends the field to the class itself, so that every store meets it. As a plugin of pytest
(`-p tests.conformance.appended_field`) it leaves of the tests those clauses of the contract that write statuses.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

FIELD: Final = "appended"
DEFAULT: Final = "nothing"
SAID: Final = "said"
"""What the tasks of this build have in the field, so that it is missed where it is lost."""

CLAUSES: Final = ("change", "dependencies", "heartbeats")

_MODULE: Final = "fairlead.core.task"


class _Loader(SourceFileLoader):
    """Loads the module from its source, with the field behind the others of `Status`."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        module = ast.parse(self.get_data(path), path)
        (status,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Status"]
        last = max(at for at, node in enumerate(status.body) if isinstance(node, ast.AnnAssign))
        status.body[last + 1 : last + 1] = ast.parse(f"{FIELD}: str = {DEFAULT!r}").body
        return compile(module, path, "exec")


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _MODULE else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def append_field() -> None:
    """Append the field, and have the builders of the tests say something in it."""
    if _MODULE in sys.modules:
        raise RuntimeError(f"{_MODULE} is imported already; append the field in a process of its own")
    sys.meta_path.insert(0, _Finder())
    from fairlead.core.task import Status
    from fairlead.testing import builders

    if Status.__struct_fields__[-1] != FIELD:
        raise RuntimeError(f"{FIELD} is not the last field of Status")
    own: dict[str, Any] = {FIELD: SAID}
    vars(builders)["Status"] = functools.partial(Status, **own)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    append_field()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = {f"fairlead.testing.clauses.{clause}" for clause in CLAUSES}
    dropped = [item for item in items if getattr(item, "function", None).__module__ not in chosen]
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=dropped)
