"""The settings as flags: some by name, with their help, and any other by catching what is left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter

from fairlead.app.config_keys import KEYS

Text: TypeAlias = str | None
"""A setting's value as it was written; the configuration converts it, with the same errors as for a variable."""


def _flag(key: str, metavar: str) -> Parameter:
    known = KEYS[key]
    return Parameter(help=f"{known.doc}. *{known.variable}*", metavar=metavar)


QUEUES: Final = _flag("queues", "A,B")
CAPABILITIES: Final = _flag("capabilities", "A,B")
CONCURRENCY: Final = _flag("concurrency", "N")
PROCESSES: Final = _flag("processes", "N")
DRAIN_SECONDS: Final = _flag("drain_seconds", "S")
HOST: Final = _flag("host", "ADDRESS")
PORT: Final = _flag("port", "N")
ROOT_PATH: Final = _flag("root_path", "PATH")
TRUSTED_PROXIES: Final = _flag("trusted_proxies", "A,B")
METRICS_PORT: Final = _flag("metrics_port", "N")
LOG_LEVEL: Final = _flag("log_level", "LEVEL")

AnySetting: TypeAlias = Annotated[
    str,
    Parameter(
        help="Any other setting as a flag, such as --lease-seconds 60; `fairlead config` lists them.", show=False
    ),
]

TAKING_ANY: Final = frozenset({"up", "worker", "serve", "config"})
"""The commands that take any setting as a flag."""

_SWITCHES: Final = frozenset(key.flag for key in KEYS.values() if isinstance(key.default, bool))


def switched_on(arguments: Sequence[str]) -> list[str]:
    """The arguments with a value for each switch that was given without one: `--admission` means `--admission=true`."""
    if not arguments or arguments[0] not in TAKING_ANY:
        return list(arguments)
    return [
        f"{word}=true" if word in _SWITCHES and after.startswith("-") else word
        for word, after in itertools.pairwise([*arguments, "-"])
    ]
