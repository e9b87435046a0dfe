"""The command line: where everything is put together. One file per group of commands.

Cyclopts and rich are imported here and nowhere else, rich only when something is drawn.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    from fairlead.cli.program import run

    sys.exit(run(sys.argv[1:]))
