"""The hooks that run before a commit are targets of the Makefile that `make test` runs too."""

from __future__ import annotations

import re
from typing import Final

import yaml

from tests.docs.reading import ROOT

CONFIG: Final = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")
HOOKS: Final = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]


def test_hooks_download_nothing() -> None:
    assert [repository["repo"] for repository in CONFIG["repos"]] == ["local"]
    assert {hook["language"] for hook in HOOKS} == {"system"}


def test_hooks_are_what_make_test_begins_with() -> None:
    (recipe,) = re.findall(r"^test:.*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)

    assert [hook["entry"] for hook in HOOKS] == [f"make {target}" for target in re.findall(r"\$\(MAKE\) (\w+)", recipe)]
