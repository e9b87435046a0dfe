"""How the tests open stores: any number of times, each time an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]
"""Opens a store and closes it again; what else it promises is said where it is asked for."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """The store at this URL, as it was left."""
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_memory() -> AsyncIterator[Store]:
    """An empty memory store."""
    yield MemoryStore()
