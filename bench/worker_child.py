"""The other process of a worker benchmark: `worker_child.py URL fill|drain|observed|work|pace [COUNT]`."""

from __future__ import annotations

import asyncio
import sys
import time

from fairlead import Fairlead, Metrics
from fairlead.engine.events.types import Observer
from fairlead.worker.logs import LogSetup, log_handler, start_logging
from fairlead.worker.process import _loop_factory
from fairlead.worker.task_log import TransitionLog

url, role = sys.argv[1:3]
observers: list[Observer] = []
if role == "observed":
    # As `fairlead worker --metrics-port` does.
    start_logging(LogSetup("info", as_json=True))
    handler = log_handler()
    assert handler is not None
    observers = [TransitionLog(handler), Metrics()]
app = Fairlead(url, observers=observers)
ran = 0
awaited = 0
all_ran = asyncio.Event()


@app.task
async def noop(number: int) -> int:
    global ran
    ran += 1
    if ran == awaited:
        all_ran.set()
    return number


@app.task
async def stamp(sent: float) -> float:
    return time.monotonic() - sent


async def fill(count: int) -> None:
    for _ in range(count // 1_000):
        await noop.submit_many([noop.call(number) for number in range(1_000)])
    await app.close()


async def drain(count: int) -> None:
    global awaited
    awaited = count
    worker = await app.worker()
    start, processor = time.perf_counter(), time.process_time()
    working = asyncio.create_task(worker.run())
    await all_ran.wait()
    worker.leave()
    await working
    elapsed, processor = time.perf_counter() - start, time.process_time() - processor
    print(count / elapsed, processor / count * 10_000)
    await app.close()


async def pace(count: int) -> None:
    for _ in range(count):
        task = await stamp.submit(time.monotonic())
        print(await task.result(30))
        await asyncio.sleep(0.02)
    await app.close()


if __name__ == "__main__":
    match role:
        case "fill":
            asyncio.run(fill(int(sys.argv[3])))
        case "drain" | "observed":
            # On the event loop that `run_worker` uses.
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(drain(int(sys.argv[3])))
        case "pace":
            asyncio.run(pace(int(sys.argv[3])))
        case "work":
            print("ready", flush=True)
            app.run_worker()
        case _:
            sys.exit(f"{role!r} is no role; use fill, drain, observed, pace or work")
