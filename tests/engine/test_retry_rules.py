"""Retry rules, on every store: a task keeps its own from its submit to its last error."""

from __future__ import annotations

from fairlead.core.events import Failed
from fairlead.core.instant import SECOND
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.settings import CEILINGS_BY_PRIORITY, Rules, Settings
from fairlead.core.task import Failure, Priority, Reason, State
from fairlead.storage.protocol import Store
from tests.engine.building import Bench

RULES = {
    "net.Timeout": RetryRule(max_retries=3, backoff=Backoff(initial=0)),
    "Broken": RetryRule(reject=True),
}


def error(type: str, *names: str) -> Failed:
    return Failed(failure=Failure(type=type), names=names)


async def test_each_error_is_judged_by_its_rule_over_the_life_of_a_task(any_store: Store) -> None:
    bench = Bench(store=any_store, batching=False)
    await bench.submit(max_retries=0, retry_rules=RULES)
    for _ in range(3):
        (task,) = await bench.claim()
        task = await bench.settle(task, error("Slow", "net.low.Timeout"))
        assert (task.state, task.status.reason) == (State.QUEUED, Reason.FAILED)
    (task,) = await bench.claim()
    task = await bench.settle(task, error("Slow", "net.low.Timeout"))
    assert (task.state, task.status.reason) == (State.DEAD_LETTER, Reason.RULE_USED_UP)


async def test_an_error_that_a_rule_rejects_ends_the_task_and_others_have_its_backoff(any_store: Store) -> None:
    bench = Bench(store=any_store, batching=False)
    await bench.submit(retry_rules=RULES, backoff=Backoff(initial=8 * SECOND, jitter=0.0))
    (task,) = await bench.claim()
    task = await bench.settle(task, error("Other"))
    assert (task.state, task.status.ready_at) == (State.SCHEDULED, bench.clock.now() + 8 * SECOND)
    bench.clock.advance(8 * SECOND)
    await bench.engine.sweep()
    (task,) = await bench.claim()
    task = await bench.settle(task, error("Broken"))
    assert (task.state, task.status.reason) == (State.FAILED, Reason.REJECTED_BY_RULE)


async def test_the_ceiling_of_its_priority_and_the_growth_of_timeouts_hold_for_what_is_stored(any_store: Store) -> None:
    before = Bench(store=any_store, batching=False)
    backoff = Backoff(initial=300 * SECOND, jitter=0.0)
    await before.submit(retry_rules=RULES, backoff=backoff, priority=Priority.CRITICAL, timeout=60 * SECOND)
    rules = Rules(delay_ceilings=CEILINGS_BY_PRIORITY, timeout_growth_after_failure=True)
    bench = Bench(Settings(rules=rules), store=any_store, batching=False, clock=before.clock)
    (task,) = await bench.claim()
    task = await bench.settle(task, error("Other"))
    assert (task.state, task.status.ready_at) == (State.SCHEDULED, bench.clock.now() + 10 * SECOND)
    bench.clock.advance(10 * SECOND)
    await bench.engine.sweep()
    (task,) = await bench.claim()
    assert task.status.timeout == 90 * SECOND
