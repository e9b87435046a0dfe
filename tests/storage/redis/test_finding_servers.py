"""The first server of a URL hangs: the others are asked within the same call, or no call would ever come to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store
from fairlead.storage.values import Added
from fairlead.testing.builders import NOW, a_task
from tests.servers.redis import RedisCluster, Watched

pytestmark = pytest.mark.slow


@pytest.fixture
def hanging() -> Iterator[str]:
    """A host that takes connections and says nothing, as a frozen process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("servers", ["watched", "cluster"])
async def test_a_store_is_opened_past_a_server_that_hangs(
    request: pytest.FixtureRequest, servers: str, prefix: str, hanging: str, blocking: bool
) -> None:
    real: Watched | RedisCluster = request.getfixturevalue(servers)
    scheme, _, rest = real.url(prefix=prefix).partition("://")
    url = f"{scheme}://{hanging},{rest}"

    def work() -> None:
        store = run_inline(open_store(url, blocking=True))
        assert run_inline(store.add([a_task()], now=NOW, bounds={})) == [Added()]
        run_inline(store.close())

    if blocking:
        await asyncio.to_thread(work)
        return
    store = await open_store(url)
    assert await store.add([a_task()], now=NOW, bounds={}) == [Added()]
    await store.close()
