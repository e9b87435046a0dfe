"""An app with a lifespan, middleware and providers, in a module that an isolated process can import.

All that happens is written to the file that SURROUNDED names, one word a line.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from fairlead import Depends, Fairlead, Middleware, TaskContext


def note(what: str) -> None:
    with Path(os.environ["SURROUNDED"]).open("a") as file:
        file.write(f"{what}\n")


class State:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.process = os.getpid()


@asynccontextmanager
async def lifespan(app: Fairlead) -> AsyncIterator[State]:
    note(f"open {os.getpid()}")
    yield State(asyncio.get_running_loop())
    note(f"close {os.getpid()}")


class Outer(Middleware):
    @contextmanager
    def attempt(self, context: TaskContext, /) -> Iterator[None]:
        note(f"outer+ {threading.get_ident()}")
        try:
            yield
        except Exception as error:
            note(f"outer {type(error).__name__} {context.is_final(error)}")
            raise
        finally:
            note("outer-")


class Inner(Middleware):
    @asynccontextmanager
    async def attempt(self, context: TaskContext, /) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        note("inner+")
        assert asyncio.get_running_loop() is context.state(State).loop
        try:
            yield
        finally:
            await asyncio.sleep(0)
            note("inner-")


def plain() -> str:
    return "plain"


def generator(context: TaskContext) -> Iterator[int]:
    note(f"generator+ {threading.get_ident()}")
    yield context.state(State).process
    note(f"generator- {threading.get_ident()}")


async def coroutine(context: TaskContext) -> str:
    assert asyncio.get_running_loop() is context.state(State).loop
    return context.id


async def session(context: TaskContext) -> AsyncIterator[str]:
    note("session+")
    try:
        yield "session"
    except ValueError:
        note("session rolls back")
    finally:
        await asyncio.sleep(0)
        note("session-")


app = Fairlead("memory://", lifespan=lifespan, middleware=[Outer(), Inner()])


@app.task(name="coroutine", max_retries=0)
async def as_coroutine(
    fails: bool = False,
    *,
    a: str = Depends(plain),
    b: int = Depends(generator),
    c: str = Depends(coroutine),
    d: str = Depends(session),
) -> list[object]:
    return handled(fails, a, b, c, d)


@app.task(name="thread", max_retries=0)
def in_thread(
    fails: bool = False,
    *,
    a: str = Depends(plain),
    b: int = Depends(generator),
    c: str = Depends(coroutine),
    d: str = Depends(session),
) -> list[object]:
    return handled(fails, a, b, c, d)


@app.task(name="isolated_coroutine", isolate=True, max_retries=0)
async def isolated_coroutine(
    fails: bool = False,
    *,
    a: str = Depends(plain),
    b: int = Depends(generator),
    c: str = Depends(coroutine),
    d: str = Depends(session),
) -> list[object]:
    return handled(fails, a, b, c, d)


@app.task(name="isolated_function", isolate=True, max_retries=0)
def isolated_function(
    fails: bool = False,
    *,
    a: str = Depends(plain),
    b: int = Depends(generator),
    c: str = Depends(coroutine),
    d: str = Depends(session),
) -> list[object]:
    return handled(fails, a, b, c, d)


def handled(fails: bool, *made: object) -> list[object]:
    note(f"handler {threading.get_ident()}")
    if fails:
        raise ValueError("as asked")
    return [*made, os.getpid()]


@app.task(isolate=True, max_retries=0)
async def loop_id() -> int:
    return id(asyncio.get_running_loop())


@app.task(isolate=True, max_retries=0)
async def stop_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    note("went on")


TASKS = {
    "coroutine": as_coroutine,
    "thread": in_thread,
    "isolated_coroutine": isolated_coroutine,
    "isolated_function": isolated_function,
}
