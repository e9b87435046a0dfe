"""Finding the app that MODULE:APP names: a mistake is told with its near misses, never with a traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import Fairlead, InvalidSettings, Settings
from fairlead.app.config import Configuration, load
from fairlead.cli.app_loader import load_app

FILES = {
    "harbour.py": "from fairlead import Fairlead\napp = Fairlead('sqlite:///code.db')\nother = 3\n",
    "broken.py": "import nosuch\n",
    "syntax.py": "def app(:\n",
    "raising.py": "def f():\n    raise RuntimeError('boo')\nf()\n",
    "exiting.py": "import sys\nfrom harbour import app\nsys.exit(0)\n",
    "pier/__init__.py": "class holder:\n    from harbour import app\n",
    "own.py": "from fairlead import Fairlead, Settings\napp = Fairlead(settings=Settings(payload_limit=99))\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the files above, in the current folder, forgotten afterwards."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in FILES:
        sys.modules.pop(name.split(".")[0].split("/")[0], None)


def configuration(**flags: object) -> Configuration:
    return load(flags, {})


def find(place: str, **flags: object) -> Fairlead:
    return load_app(place, configuration(**flags), ())


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("harbour", "'harbour' does not name an app; write MODULE:APP"),
        ("harbour:", "does not name an app"),
        ("harbor:app", "there is no module 'harbor' in .*; did you mean harbour"),
        ("pier.quay:app", "there is no module 'pier.quay' in pier"),
        ("harbour.py:app", "is a file's path; write the module's name, as in harbour:app"),
        ("pier/quay.py:app", "as in pier.quay:app"),
        ("harbour:ap", "the module 'harbour' has no 'ap'; did you mean harbour:app"),
        ("harbour:other", "harbour:other is not a Fairlead app but int; did you mean harbour:app"),
        ("broken:app", r"cannot be imported: ModuleNotFoundError: No module named 'nosuch' \(.*broken.py, line 1\)"),
        ("syntax:app", r"cannot be imported: SyntaxError: .* \(.*syntax.py, line 1\)"),
        ("raising:app", r"cannot be imported: RuntimeError: boo \(.*raising.py, line 2\)"),
        (
            "exiting:app",
            r"cannot be imported: SystemExit: 0 \(.*exiting.py, line 3\); put what .* under if __name__ ==",
        ),
    ],
)
def test_a_mistake_names_what_is_near(place: str, complaint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        find(place)
    assert re.search(complaint, str(caught.value))
    assert "\n" not in str(caught.value)


def test_the_store_of_the_code_counts_unless_another_is_named() -> None:
    assert find("harbour:app").store == "sqlite:///code.db"
    assert find("pier:holder.app", store="sqlite:///flag.db").store == "sqlite:///flag.db"


def test_settings_of_the_code_count_before_configured_ones(caplog: pytest.LogCaptureFixture) -> None:
    assert find("own:app", lease_seconds=44.0).settings == Settings(payload_limit=99)
    assert "its own settings" in caplog.text


def test_the_built_in_handlers_are_an_app_too() -> None:
    assert find("builtin").handlers.types == {"echo", "email", "fail", "sleep", "webhook"}
