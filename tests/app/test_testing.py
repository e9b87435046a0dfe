"""`app.testing()`: an app's tasks inside a test, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlead import Backoff, Fairlead, InvalidSettings, InvalidTask, Reject, Retry, State, TaskFailed, current_task
from fairlead.core.instant import SECOND
from fairlead.core.task import Reason
from tests.worker import isolated


def an_app() -> Fairlead:
    return Fairlead("sqlite:////nowhere/that/exists/tasks.db")


async def test_tasks_run_in_memory_and_the_store_of_the_app_is_not_touched() -> None:
    app = an_app()

    @app.task
    async def work(number: int) -> int:
        return 2 * number

    async with app.testing() as rehearsal:
        assert app.store == "memory://"
        task = await work.submit(4)
        assert await rehearsal.run() == 1
        assert await task.result() == 8
    assert app.store == "sqlite:////nowhere/that/exists/tasks.db"


async def test_retries_wait_for_time_to_pass() -> None:
    app = an_app()
    attempts: list[int] = []

    @app.task(max_retries=2, backoff=Backoff(initial=60, jitter=0.0))
    async def flaky() -> str:
        attempts.append(current_task().attempt)
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        return "well"

    async with app.testing() as rehearsal:
        task = await flaky.submit()
        assert await rehearsal.run() == 1
        assert (await task.refresh()).status is State.SCHEDULED
        rehearsal.advance(59)
        assert await rehearsal.run() == 0
        rehearsal.advance(1)
        assert await rehearsal.run() == 1
        rehearsal.advance(120)
        assert await rehearsal.run() == 1
        assert await task.result() == "well"
    assert attempts == [1, 2, 3]


async def test_run_all_travels_to_whatever_is_due_next() -> None:
    app = an_app()
    order: list[str] = []

    @app.task(max_retries=3)
    async def work(name: str) -> None:
        order.append(name)
        if name == "retried" and current_task().attempt < 3:
            raise Retry(after=3_600)

    async with app.testing() as rehearsal:
        began = rehearsal.clock.now()
        await work.options(delay=7 * 24 * 3_600).submit("next week")
        await work.options(run_at=datetime.fromtimestamp(began / 1e6, UTC) + timedelta(days=1)).submit("tomorrow")
        await work.submit("retried")
        assert await rehearsal.run_all() == 5
        assert rehearsal.clock.now() - began == 7 * 24 * 3_600 * SECOND
    assert order == ["retried"] * 3 + ["tomorrow", "next week"]


async def test_tasks_that_tasks_submit_run_too() -> None:
    app = an_app()
    done: list[int] = []

    @app.task
    async def count_down(number: int) -> None:
        done.append(number)
        if number:
            await count_down.submit(number - 1)

    async with app.testing() as rehearsal:
        await count_down.submit(3)
        assert await rehearsal.run() == 4
    assert done == [3, 2, 1, 0]


async def test_what_a_task_requires_or_its_queue_is_no_hindrance_and_no_handler_is() -> None:
    app = an_app()

    @app.task(requires={"gpu", "eu"}, queue="video")
    async def render() -> str:
        return "rendered"

    other = an_app()

    @other.task
    async def stranger() -> None: ...

    async with app.testing() as rehearsal:
        task = await render.submit()
        assert await rehearsal.run() == 1
        assert await task.result() == "rendered"


async def test_failures_end_as_they_would_in_production() -> None:
    app = an_app()

    @app.task(max_retries=1)
    async def broken(reject: bool) -> None:
        raise Reject("no") if reject else ValueError("broken")

    async with app.testing() as rehearsal:
        rejected, dead = await broken.submit(reject=True), await broken.submit(reject=False)
        assert await rehearsal.run_all() == 3
        with pytest.raises(TaskFailed, match=r"failed \(rejected\)"):
            await rejected.result()
        with pytest.raises(TaskFailed, match=r"dead_letter \(retries_used_up\): ValueError: broken"):
            await dead.result()


def test_a_synchronous_test_can_rehearse_too() -> None:
    app = an_app()

    @app.task(max_retries=1)
    def work(number: int) -> int:
        if current_task().attempt == 1:
            raise ConnectionError
        return number

    with app.testing() as rehearsal:
        task = work.submit_sync(4)
        assert rehearsal.run_sync() == 1
        assert rehearsal.run_all_sync() == 1
        assert task.result_sync(timeout=0) == 4


def test_threads_and_processes_are_not_left_behind(tmp_path: Path) -> None:
    app = an_app()
    app.task(isolate=True)(isolated.process_id)

    @app.task
    def in_thread() -> None: ...

    before = {thread.ident for thread in threading.enumerate()}
    with app.testing() as rehearsal:
        for _ in range(3):
            in_thread.submit_sync()
            assert rehearsal.run_sync() == 1

        async def in_process() -> int:
            task = await app_task.submit()
            await rehearsal.run()
            return int(await task.result())

        app_task = app.task(name="again", isolate=True)(isolated.process_id)
        cell = asyncio.run(in_process())
    assert not Path(f"/proc/{cell}").exists()
    for thread in threading.enumerate():
        if thread.ident not in before:
            thread.join(30)
            assert not thread.is_alive()


async def test_two_apps_side_by_side_do_not_see_each_other() -> None:
    one, two = an_app(), Fairlead("memory://")

    @one.task(name="work")
    async def work_of_one() -> int:
        return 1

    @two.task(name="work")
    async def work_of_two() -> int:
        return 2

    async with one.testing() as first, two.testing() as second:
        mine, yours = await work_of_one.submit(), await work_of_two.submit()
        assert await first.run() == 1
        assert (await yours.refresh()).status is State.QUEUED
        assert await second.run() == 1
        assert (await mine.result(), await yours.result()) == (1, 2)


async def test_a_task_that_submits_itself_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    app = an_app()
    monkeypatch.setattr("fairlead.app.testing._ROUNDS", 10)

    @app.task
    async def again() -> None:
        await again.submit()

    async with app.testing() as rehearsal:
        await again.submit()
        with pytest.raises(RuntimeError, match="does a task submit itself for ever"):
            await rehearsal.run()


async def hang() -> None:
    await asyncio.Event().wait()


def hang_in_thread() -> None:
    threading.Event().wait(60)


@pytest.mark.parametrize("real", [False, True], ids=["usual timeout", "short timeout"])
@pytest.mark.parametrize(
    ("handler", "isolate"),
    [(hang, False), (hang_in_thread, False), (isolated.hang, True), (isolated.hang_async, True)],
    ids=["coroutine", "thread", "process", "coroutine in a process"],
)
async def test_a_task_that_hangs_times_out_wherever_it_runs(
    handler: Callable[[], object], isolate: bool, real: bool
) -> None:
    app = an_app()
    stuck = app.task(
        name="stuck", max_retries=0, timeout=0.3 if real else 300, isolate=isolate
    )(handler)  # fmt: skip
    async with app.testing(patience=60 if real else 0.3) as rehearsal:
        began = rehearsal.clock.now()
        task = await stuck.submit()
        assert await rehearsal.run() == 1
        status = (await task.refresh()).snapshot.status
        assert (status.reason, [entry.reason for entry in status.history]) == (
            Reason.RETRIES_USED_UP, [Reason.RETRIES_USED_UP]
        )  # fmt: skip
        assert status.failure is not None and status.failure.type == "Timeout"
        assert rehearsal.clock.now() - began == (0 if real else 300 * SECOND)


async def test_a_task_that_hangs_is_tried_again_with_more_time() -> None:
    app = an_app()
    stuck = app.task(name="stuck", max_retries=1, timeout=100, backoff=Backoff(initial=1, jitter=0.0))(hang)
    async with app.testing(patience=0.1) as rehearsal:
        began = rehearsal.clock.now()
        task = await stuck.submit()
        assert await rehearsal.run_all() == 2
        assert (await task.refresh()).status is State.DEAD_LETTER
        assert rehearsal.clock.now() - began == 251 * SECOND


def test_a_synchronous_test_of_a_task_that_hangs_ends_too() -> None:
    app = an_app()
    stuck = app.task(name="stuck", max_retries=0)(hang_in_thread)
    with app.testing(patience=0.1) as rehearsal:
        task = stuck.submit_sync()
        assert rehearsal.run_sync() == 1
        with pytest.raises(TaskFailed, match="Timeout"):
            task.result_sync(timeout=0)


async def test_a_timeout_passes_on_the_rehearsals_clock_too() -> None:
    app = an_app()
    begun = asyncio.Event()

    @app.task(max_retries=0, timeout=300)
    async def stuck() -> None:
        begun.set()
        await hang()

    async with app.testing(patience=60) as rehearsal:
        task = await stuck.submit()
        running = asyncio.create_task(rehearsal.run())
        await begun.wait()
        rehearsal.advance(300)
        assert await running == 1
        assert (await task.refresh()).status is State.DEAD_LETTER


def test_a_rehearsal_without_patience_is_refused() -> None:
    for patience in (0, -1, "x", float("nan"), True, None):
        with pytest.raises(InvalidSettings, match=r"patience .*; use "):
            an_app().testing(patience=patience)  # type: ignore[arg-type]
    an_app().testing(patience=2 * SECOND)


async def test_the_time_of_a_rehearsal_goes_forward() -> None:
    with an_app().testing() as rehearsal:
        for seconds in (-1, "x", 1e300, None):
            with pytest.raises(InvalidTask, match=r"seconds .*; use "):
                rehearsal.advance(seconds)  # type: ignore[arg-type]
            with pytest.raises(InvalidTask, match=r"seconds .*; use "):
                await rehearsal.travel(seconds)  # type: ignore[arg-type]


async def test_the_store_is_given_back_after_a_failed_test() -> None:
    app = an_app()
    with pytest.raises(ZeroDivisionError):
        async with app.testing():
            raise ZeroDivisionError
    assert app.store.startswith("sqlite:")


async def test_a_crash_of_an_isolated_task_is_rehearsed_too() -> None:
    app = an_app()
    crash = app.task(isolate=True, max_crashes=1)(isolated.segfault)
    async with app.testing() as rehearsal:
        task = await crash.submit()
        assert await rehearsal.run_all() == 2
        assert (await task.refresh()).snapshot.status.reason is Reason.CRASH_LOOP


async def test_a_result_that_nobody_makes_is_not_waited_for_for_ever() -> None:
    app = an_app()

    @app.task
    async def work() -> None: ...

    async with app.testing(patience=0.1):
        handle = await work.submit()
        with pytest.raises(TimeoutError, match=r"has not ended after 0\.1 s"):
            await handle.result()
        with pytest.raises(TimeoutError, match=r"has not ended after 0\.1 s"):
            handle.result_sync()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
async def test_a_handler_that_blocks_the_loop_fails_its_test_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.app.testing._LEAST_BLOCKED", 1.0)
    app = an_app()
    never = threading.Event()

    @app.task
    async def block() -> None:
        never.wait()

    before = signal.getsignal(signal.SIGUSR2)
    async with app.testing(patience=0.2) as rehearsal:
        handle = await block.submit()
        with pytest.raises(RuntimeError, match=r"blocked the event loop for 1 s at .*; await what takes time"):
            await rehearsal.run()
        assert (await handle.refresh()).status is State.FAILED
        await block.submit()
        with pytest.raises(RuntimeError, match="blocked the event loop"):
            await rehearsal.run()
    assert signal.getsignal(signal.SIGUSR2) is before


PROJECT = {
    "shop.py": """
from collections.abc import Iterator
from fairlead import Depends, Fairlead

app = Fairlead("sqlite:////nowhere/that/exists/tasks.db")


def session() -> Iterator[str]:
    yield "real"


@app.task
def bill(number: int, *, db: str = Depends(session)) -> str:
    return f"{db} {number}"
""",
    "test_shop.py": """
import pytest
import shop


def test_bill(rehearsal):
    task = shop.bill.submit_sync(1)
    assert rehearsal.run_sync() == 1
    assert task.result_sync() == "real 1"


async def a_bill(rehearsal):
    task = await shop.bill.submit(1)
    assert await rehearsal.run() == 1
    return await task.result()


class TestFakes:
    @pytest.fixture
    def fairlead_overrides(self):
        return {shop.session: lambda: "fake"}

    def test_bill(self, rehearsal):
        import asyncio

        assert asyncio.run(a_bill(rehearsal)) == "fake 1"
""",
    "test_nothing.py": """
import sys


def test_nothing_is_imported_until_a_fixture_is_used():
    assert {name for name in sys.modules if name.partition(".")[0] == "fairlead"} == {
        "fairlead", "fairlead._version", "fairlead.app", "fairlead.app.pytest_plugin"
    }
    assert "msgspec" not in sys.modules
""",
}


@pytest.mark.parametrize(
    ("file", "option", "code", "told"),
    [
        ("test_shop.py", "shop:app", 0, "2 passed"),
        ("test_nothing.py", "", 0, "1 passed"),
        ("test_shop.py", "", 1, "names no app; write MODULE:APP in pytest's configuration"),
        ("test_shop.py", "shop:session", 1, "is not a Fairlead app but function"),
    ],
)
def test_pytest_finds_the_fixtures_by_themselves(tmp_path: Path, file: str, option: str, code: int, told: str) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfairlead_app = {option}\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:schemathesis", "-p", "no:cacheprovider", file]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert told in ran.stdout
