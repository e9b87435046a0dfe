"""A small shop: what the pictures of the documentation show.

    shop.py HOST up …                      `fairlead up`
    shop.py HOST work STORE SLOTS QUEUE…   a worker that runs the shop's tasks

A process goes by HOST, not by the name of the machine that takes the pictures. Nothing here needs a network or a file.
"""

from __future__ import annotations

import asyncio
import platform
import sys

from fairlead import Fairlead
from fairlead.cli import main
from fairlead.worker.worker import WorkerSettings


class CardDeclined(Exception):
    """The bank said no."""


async def charge_card(order: int, seconds: float = 1.0, declined: bool = False) -> str:
    await asyncio.sleep(seconds)
    if declined:
        raise CardDeclined(f"the card of order {order} was declined")
    return f"order {order} is paid"


async def send_receipt(customer: int) -> None:
    raise LookupError(f"customer {customer} has no address")


async def fetch_rates(after: int) -> None:
    raise TimeoutError(f"the bank did not answer within {after} s")


async def resize_image(width: int, seconds: float = 1.0) -> int:
    await asyncio.sleep(seconds)
    return width


def work(store: str, slots: str, *queues: str) -> None:
    app = Fairlead(store)
    for handler in (charge_card, send_receipt, fetch_rates, resize_image):
        app.task(handler)
    app.run_worker(queues=queues, settings=WorkerSettings(concurrency=int(slots)), keeper_process=False)


if __name__ == "__main__":
    host, command, *arguments = sys.argv[1:]
    platform.node = lambda: host
    if command == "work":
        work(*arguments)
    else:
        sys.argv[1:] = [command, *arguments]
        main()
