"""What the build has made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ASSETS: Final = ROOT / "src" / "fairlead" / "server" / "dashboard_assets"
AXE: Final = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"


def assets_or_skip() -> Path:
    """The built dashboard; skips, or fails in CI, when it is not built."""
    return _present_or_skip(ASSETS / "index.html").parent


def axe_or_skip() -> str:
    """The accessibility checker, which npm installs with what the build needs."""
    return _present_or_skip(AXE).read_text("utf-8")


def _present_or_skip(path: Path) -> Path:
    if path.exists():
        return path
    reason = f"there is no {path.relative_to(ROOT)}: run `make dashboard`, which needs Node and npm's registry"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)
