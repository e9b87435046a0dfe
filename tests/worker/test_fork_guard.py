"""A child that a handler forks on the event loop does nothing there that its parent does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fairlead.worker.isolation import fork_guard

PROGRAM = """
import asyncio, os, socket, sys
from fairlead.worker.isolation import fork_guard

async def main():
    loop = asyncio.get_running_loop()
    fork_guard.hear_signals(loop)
    ours, theirs = socket.socketpair()
    store, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    told, tell = os.pipe()
    child = []

    def fork():
        if (process := os.fork()) == 0:
            # Its parent waits for all that it might say.
            os.close(told)
        else:
            os.close(tell)
            child.append(process)

    # As when what others have ready is called in the same turn.
    loop.call_soon(store.write, b"before, ")
    loop.call_soon(fork)
    loop.call_soon(store.write, b"after")
    while not child:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    _, status = await asyncio.to_thread(os.waitpid, child[0], 0)
    store.close()
    await asyncio.sleep(0)
    theirs.settimeout(60)
    said = b""
    while part := theirs.recv(100):
        said += part
    print(status, said.decode())

if sys.argv[1] == "uvloop":
    import uvloop
    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_ready_at_a_fork_is_done_once_and_said_once(loop: str) -> None:
    """Said twice on the connection to a store, it would shift all answers there by one."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    ran = subprocess.run([sys.executable, "-c", PROGRAM, loop], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("0 before, after\n", "")


def test_how_signals_were_heard_is_forgotten_with_the_loop_that_heard_them(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    monkeypatch.setattr(fork_guard, "_heard", {signal.SIGTERM: signal.getsignal(signal.SIGTERM)})
    monkeypatch.setattr(fork_guard, "_wakeup", writing)
    fork_guard.hear_again()
    assert fork_guard._heard == {}
