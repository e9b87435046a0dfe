"""The files under ops/, and the parts of them that tests look at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
RULES = OPS / "prometheus" / "fairlead.rules.yml"
RULE_TESTS = OPS / "prometheus" / "fairlead.test.yml"
DASHBOARD = OPS / "grafana" / "fairlead.json"


def documents(file: Path) -> list[Any]:
    """What a YAML file says, document by document."""
    return [document for document in yaml.safe_load_all(file.read_text("utf-8")) if document is not None]


def document(file: Path) -> Any:
    """What a YAML file of one document says."""
    (only,) = documents(file)
    return only


def alerts() -> list[dict[str, Any]]:
    """The alerts."""
    return [rule for group in document(RULES)["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard, without the headings of its rows."""
    return [panel for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"] if panel["type"] != "row"]


_COMMAND = re.compile(
    r"`(fairlead\s[^`]+)`|^\s*(fairlead\s[^\n]+)$|-- (fairlead\s[^\n`]+)|run\s--rm\s(?:server\s)([^\n`]+)", re.MULTILINE
)


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of the commands that a text names: in backticks, on lines of their own, or run in a container."""
    for found in _COMMAND.findall(text):
        yield "".join(found).replace("'", "").removeprefix("fairlead").split()
