"""`make alone`: measure fairlead, print, and write build/bench.json. `--quick` for a first impression."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bench import queueing, working
from bench.measuring import Figure
from bench.report import save, show
from fairlead.worker.process import _loop_factory

BACKLOGS = (10_000, 1_000_000)


async def measure(stores: list[str], *, quick: bool) -> list[Figure]:
    repeats = 1 if quick else 5
    backlogs = (10_000, 100_000) if quick else BACKLOGS
    figures: list[Figure] = []
    for store in stores:
        figures += await queueing.measure(store, repeats=repeats, backlogs=backlogs)
        if store != "memory":
            figures += await working.measure(store, repeats=min(repeats, 3))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store", action="append", help="memory, sqlite, or the URL of a server that may be filled; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="one run each and a smaller backlog")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    # On the event loop that workers and servers run on.
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        figures = runner.run(measure(arguments.store or ["memory", "sqlite"], quick=arguments.quick))
    show(figures)
    save(figures, arguments.output)


if __name__ == "__main__":
    main()
