"""What is public: exactly what the package names, and all of it is documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import fairlead
from fairlead import Fairlead, TaskHandle
from fairlead.app.task_type import TaskDefinition
from fairlead.app.testing import Rehearsal
from fairlead.worker.context import TaskContext
from fairlead.worker.keeper.keeper import PROGRAM

SPARED = {"redis", "psycopg", "starlette", "uvicorn", "structlog", "uvloop", "cyclopts", "rich", "opentelemetry"}


def test_what_is_named_is_what_is_exported() -> None:
    public = {name for name in dir(fairlead) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(fairlead, name), ModuleType)}
    assert public - modules == set(fairlead.__all__) - {"__version__"}
    assert fairlead.__version__


@pytest.mark.parametrize("name", [name for name in fairlead.__all__ if name != "__version__"])
def test_every_export_is_documented(name: str) -> None:
    assert (getattr(fairlead, name).__doc__ or "").strip()


@pytest.mark.parametrize("documented", [Fairlead, TaskHandle, TaskDefinition, TaskContext, Rehearsal])
def test_every_public_method_of_the_sdk_is_documented(documented: type) -> None:
    plain = {"id", "type", "queue", "trace"}
    bare = [
        name
        for name, member in inspect.getmembers(documented)
        if not name.startswith("_") and name not in plain and callable(member) and not inspect.getdoc(member)
    ]
    assert bare == []


def test_importing_the_package_imports_no_extra_and_no_command_line() -> None:
    code = "import sys; from fairlead import *; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert set(ran.stdout.split()) & SPARED == set()


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'fairlead' has no attribute 'Celery'"):
        fairlead.Celery  # noqa: B018


def imported_by(code: str) -> set[str]:
    """The modules that are imported by this code, and not before."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(ran.stdout.split())


def test_a_keeper_of_leases_that_dozes_imports_next_to_nothing() -> None:
    assert PROGRAM.endswith("; main()")
    imported = imported_by(PROGRAM.removesuffix("; main()"))
    assert {name for name in imported if name.startswith("fairlead")} == {
        "fairlead",
        "fairlead._version",
        "fairlead.worker",
        "fairlead.worker.keeper",
        "fairlead.worker.keeper.pipe",
        "fairlead.worker.keeper.process",
    }
    assert {"asyncio", "logging", "msgspec", "pathlib", "re", "threading", "typing"}.isdisjoint(imported)


def test_a_keeper_of_leases_that_keeps_some_imports_neither_the_sdk_nor_the_engine() -> None:
    imported = imported_by("import fairlead.worker.keeper.lease_renewal")
    assert {"fairlead.app.app", "fairlead.engine.engine", "asyncio"}.isdisjoint(imported)


def test_an_app_imports_its_store_before_the_first_submit_and_no_other_store() -> None:
    code = "import sys; from fairlead import Fairlead; Fairlead('sqlite:///tasks.db'); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = set(ran.stdout.split())
    assert "fairlead.storage.sqlite.store" in imported
    assert {"fairlead.storage.memory", "fairlead.storage.redis.store"}.isdisjoint(imported)


def test_a_worker_of_an_app_imports_nothing_that_only_the_builtin_handlers_need() -> None:
    imported = imported_by(
        "import fairlead.cli.commands.worker, fairlead.cli.app_loader; from fairlead import Fairlead; "
        "Fairlead('sqlite:///tasks.db'); import fairlead.worker.process"
    )
    assert {"email", "http.client", "smtplib", "fairlead.worker.builtin"}.isdisjoint(imported)
    assert {"bz2", "lzma", "tempfile"}.isdisjoint(imported)


def test_a_worker_does_not_import_digests_before_it_needs_one() -> None:
    imported = imported_by(
        "from fairlead import Fairlead; Fairlead('postgresql://localhost/tasks'); import fairlead.worker.process"
    )
    assert {"fairlead.storage.postgres.store", "fairlead.worker.worker"} <= imported
    assert {"hashlib", "_hashlib", "secrets"}.isdisjoint(imported)
