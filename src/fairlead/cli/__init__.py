"""The command line: where everything is put together. One file per group of commands.

Cyclopts and rich are imported here and nowhere else, rich only when something is drawn.
"""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    from fairlead.cli.program import run

    sys.excepthook = _tell
    sys.exit(run(sys.argv[1:]))


def _tell(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Write the traceback of a fault of ours, without what is secret in the words of any error in it."""
    import traceback

    from fairlead.core.secret_mask import masked_text

    sys.stderr.write(masked_text("".join(traceback.format_exception(kind, error, frames))))
