"""Looking for orphans: every key must belong to a task that is there, every task to all of its indexes.

This reads the keys as `fairlead.storage.redis.keys` describes them, in another way than the store does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fairlead.core.identity import TaskId
from fairlead.core.task import State, Task
from fairlead.storage.redis.health_facts import is_known
from fairlead.storage.redis.keys import CODES, EXPIRING, TREES, Keys, task_of
from tests.servers.redis import RedisServer


def assert_no_orphans(servers: Iterable[RedisServer], prefix: str) -> None:
    """Nothing is left of this prefix but tasks and what belongs to them; then all of that is removed, too."""
    for server in servers:
        found = server.ask("KEYS", f"{{{prefix}[:}}]*")
        assert [key for key in found if not is_known(key, prefix)] == [], "the doctor would call these strange"
        for base in {key[: key.index(b"}") + 1] for key in found if key.startswith(f"{{{prefix}:".encode())}:
            _check_slot(server, base, {key[len(base) :] for key in found if key.startswith(base)})
        others = {key for key in found if key.startswith(f"{{{prefix}}}".encode())}
        for key in others:
            assert key.endswith((b"}slots", b"}feed")) or b"}r" in key, f"{key!r} is no key of ours"
            assert not key.endswith(b"}feed") or server.ask("TTL", key) > 0, "the feed never expires"
        # The server is shared, and looking through all keys takes longer the more there are.
        for key in found:
            server.ask("UNLINK", key)


def _check_slot(server: RedisServer, base: bytes, suffixes: set[bytes]) -> None:
    def ask(command: str, suffix: bytes, *words: Any) -> Any:
        return server.ask(command, base + suffix, *words)

    tasks: dict[bytes, Task] = {}
    for suffix in suffixes:
        if suffix.startswith(b"t"):
            tasks[suffix[1:]] = task_of(TaskId(suffix[1:].hex()), ask("GET", suffix))
    expected: set[bytes] = {b"t" + binary for binary in tasks}
    counts: Counter[bytes] = Counter()
    members: dict[bytes, dict[bytes, float]] = {}
    keys = Keys("x")
    kinds: set[bytes] = set()
    for binary, task in tasks.items():
        status = task.status
        kind = keys.kind(task.spec).digest.encode()
        lane = kind + b"%d" % status.priority
        counts[lane + CODES[status.state].encode()] += 1
        kinds.add(kind)
        if status.state is State.QUEUED:
            members.setdefault(b"l" + lane, {})[binary] = status.ready_at
            expected.add(b"q" + task.spec.queue.encode())
            assert ask("HEXISTS", b"q" + task.spec.queue.encode(), lane)
        if status.lease is not None or status.state is State.EXECUTING:
            members.setdefault(b"e", {})[binary] = float("inf") if status.alarm is None else status.alarm
        elif status.alarm is not None:
            members.setdefault(b"a", {})[binary] = status.alarm
    for suffix, wanted in members.items():
        entries = ask("ZRANGE", suffix, 0, -1, "WITHSCORES")
        assert dict(zip(entries[::2], map(float, entries[1::2]), strict=True)) == wanted, suffix
    expected |= members.keys()
    if tasks:
        fields = ask("HGETALL", b"n")
        assert dict(zip(fields[::2], map(int, fields[1::2]), strict=True)) == dict(counts)
        assert set(ask("HKEYS", b"d")) == kinds
        expected |= {b"n", b"d"}
    expected |= _check_trees(ask, tasks)
    expected |= _check_concurrency_keys(ask, tasks)
    expected |= _check_turns(ask, tasks)
    awaited = {suffix for suffix in suffixes if suffix.startswith(b"v") and len(suffix) == 17}
    if awaited:
        assert {b"v" + parent for parent in ask("SMEMBERS", b"v")} == awaited
        assert all(not tasks[suffix[1:]].state.ended for suffix in awaited), "an ended task is still waited for"
        expected |= awaited | {b"v"}
    for suffix in suffixes - expected:
        if suffix.startswith(b"y"):
            queue, _, key = suffix[1:].partition(b" ")
            holder = tasks.get(ask("GET", suffix)[:16])
            assert holder is not None, f"key {suffix!r} has no holder"
            assert (holder.spec.queue, holder.spec.idempotency_key) == (queue.decode(), key.decode())
        else:
            assert suffix[:1] in EXPIRING, f"{base + suffix!r} belongs to no task"
            assert ask("PTTL", suffix) != -1, f"{base + suffix!r} never expires"  # by now it may have
    assert expected <= suffixes


def _check_trees(ask: Any, tasks: dict[bytes, Task]) -> set[bytes]:
    expected: set[bytes] = set()
    for tree in set(TREES.values()):
        wanted = sorted(binary for binary, task in tasks.items() if TREES[task.state] == tree)
        starts = ask("ZRANGE", b"i" + tree, 0, -1)
        listed: list[bytes] = []
        for start, following in zip(starts, [*starts[1:], b"\xff" * 16], strict=False):
            packed = ask("GET", b"i" + tree + start)
            bucket = [packed[at : at + 16] for at in range(0, len(packed), 16)]
            assert bucket, "a bucket is empty"
            assert start <= bucket[0], "an id is before the start of its bucket"
            assert bucket[-1] < following, "an id is beyond its bucket"
            listed += bucket
            expected.add(b"i" + tree + start)
        assert listed == wanted, f"tree {tree!r}"
        if starts:
            expected.add(b"i" + tree)
    return expected


def _check_concurrency_keys(ask: Any, tasks: dict[bytes, Task]) -> set[bytes]:
    """The lines of keys, their counts, and that the first of each is in front unless its key is to be looked at."""
    names = Keys("x")
    lines: dict[bytes, dict[bytes, int]] = {}
    counts: dict[bytes, Counter[bytes]] = {}
    waiting: dict[bytes, dict[bytes, bytes]] = {}
    for binary, task in tasks.items():
        spec, status = task.spec, task.status
        if spec.concurrency_key is None:
            continue
        queue, key = spec.queue.encode(), spec.concurrency_key.encode()
        if status.state is State.EXECUTING:
            counts.setdefault(b"r" + queue, Counter())[key] += 1
        elif status.state is State.QUEUED:
            lane = names.kind(spec).lanes[status.priority].encode()
            lines.setdefault(b"p" + lane + b" " + key, {})[binary] = status.ready_at
            counts.setdefault(b"w" + queue, Counter())[key] += 1
            waiting.setdefault(queue, {})[lane + b" " + key] = key
    for suffix, wanted in counts.items():
        fields = ask("HGETALL", suffix)
        stored = {key: int(count) for key, count in zip(fields[::2], fields[1::2], strict=True) if key}
        assert stored == wanted, suffix
    expected = {*counts, *lines}
    for suffix, line in lines.items():
        entries = ask("ZRANGE", suffix, 0, -1, "WITHSCORES")
        assert dict(zip(entries[::2], map(int, entries[1::2]), strict=True)) == line, suffix
    for queue, of_lanes in waiting.items():
        looks = set(ask("ZRANGE", b"k" + queue, 0, -1))
        assert looks <= set(of_lanes.values()), "a key is to be looked at that has no tasks"
        expected |= {b"k" + queue} if looks else set()
        for name, key in of_lanes.items():
            front = set(ask("ZRANGE", b"f" + name[:9], 0, -1))
            expected |= {b"f" + name[:9]} if front else set()
            (first,) = ask("ZRANGE", b"p" + name, 0, 0)
            assert first in front or key in looks, f"the first task of key {key!r} is out of sight for ever"
            assert front <= tasks.keys()
    return expected


def _check_turns(ask: Any, tasks: dict[bytes, Task]) -> set[bytes]:
    """The turns of fair tasks, and how many tasks of each key wait in each line."""
    names = Keys("x")
    turns: dict[bytes, dict[bytes, int]] = {}
    waiting: dict[bytes, Counter[bytes]] = {}
    for binary, task in tasks.items():
        spec, status = task.spec, task.status
        if status.state is State.QUEUED and spec.takes_turns and spec.fair is not None:
            turns.setdefault(b"x" + names.kind(spec).lanes[status.priority].encode(), {})[binary] = status.turn
            line = b"u%d" % status.priority + spec.queue.encode()
            waiting.setdefault(line, Counter())[spec.fair.key.encode()] += 1
    for suffix, wanted in turns.items():
        entries = ask("ZRANGE", suffix, 0, -1, "WITHSCORES")
        assert dict(zip(entries[::2], map(int, entries[1::2]), strict=True)) == wanted, suffix
    for suffix, counts in waiting.items():
        fields = ask("HGETALL", suffix)
        stored = dict(zip(fields[::2], fields[1::2], strict=True))
        assert int.from_bytes(stored.pop(b"l")[14:], "big") == counts.total(), suffix
        assert {key[1:]: int.from_bytes(value[7:], "big") for key, value in stored.items()} == counts, suffix
    return {*turns, *waiting}
