"""What a request over HTTP costs a server in CPU, beside the same request of another checkout of fairlead.

    python -m bench.http_cpu --other ../older [--store memory|redis] [--pairs 9]

A pair is a fresh server of each, which answer in turn, 32 connections asking at once. Only the CPU time of the two
processes counts, so a busy machine says nearly the same as an idle one.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bench.peers.processes import fine_processor_seconds
from bench.serving import BATCH, TASK, served
from tests.servers.redis import started_single

CONNECTIONS: Final = 32
_LARGEST: Final = 65_536
_HEAD: Final = b"content-length: "
_TURNS: Final = 3 * ((0, 1), (1, 0))
"""Which server is asked first, so that neither always comes second. Many short turns meet the same neighbours."""
_PER_BATCH: Final = 20
_PER_LIST: Final = 5
"""A request for many tasks is asked once where one for a single task is asked so many times: it takes that long."""
_WARM_UP: Final = 10
"""The share of the requests, one in so many, that is asked before anything is measured."""


class Refused(Exception):
    """A server did not answer as it should have."""


class Connection:
    """One caller, who asks again as soon as it is answered."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._seen = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Ask; a request is small enough to leave at once."""
        self._socket.sendall(request)

    def receive(self) -> bytes | None:
        """The body of the answer, once it is whole."""
        data = self._socket.recv(_LARGEST)
        if not data:
            raise Refused("the server hung up")
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        if not end:
            return None
        length = head.lower().partition(_HEAD)[2].partition(b"\r\n")[0]
        if len(body) < int(length):
            return None
        self._seen = b""
        if not head.startswith(b"HTTP/1.1 2"):
            status, _, _ = head.partition(b"\r\n")
            raise Refused(f"{status.decode()}: {body.decode(errors='replace')}")
        return body

    def close(self) -> None:
        self._socket.close()


class Target:
    """A server that is measured."""

    def __init__(self, url: str, process: int) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 0)
        self._host = parts.netloc
        self._process = process
        self._connections = [Connection(self.address) for _ in range(CONNECTIONS)]

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """A request as it is sent."""
        content = b"" if body is None else msgspec.json.encode(body)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}"]
        if content:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        return "\r\n".join([*lines, "", ""]).encode() + content

    def ask(self, requests: Sequence[bytes]) -> list[bytes]:
        """The bodies of the answers, in the order of the requests."""
        waiting, answers = iter(enumerate(requests)), [b""] * len(requests)
        with selectors.DefaultSelector() as selector:

            def send_next(connection: Connection) -> None:
                place, request = next(waiting, (None, b""))
                if place is None:
                    selector.unregister(connection)
                else:
                    selector.modify(connection, selectors.EVENT_READ, place)
                    connection.send(request)

            for caller in self._connections:
                selector.register(caller, selectors.EVENT_READ)
                send_next(caller)
            while selector.get_map():
                for key, _ in selector.select():
                    ready: Any = key.fileobj
                    body = ready.receive()
                    if body is not None:
                        answers[key.data] = body
                        send_next(ready)
        return answers

    def spent(self) -> float:
        """The CPU time that the server has used so far, in seconds."""
        return fine_processor_seconds(self._process)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Course:
    """The requests of each operation, which go on from what was answered before."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tasks: list[str] = []
        self._leased: list[tuple[str, dict[str, Any]]] = []
        self._workers = [self._worker(number) for number in range(CONNECTIONS)]
        self.operations: dict[str, Callable[[int], float]] = {
            "submit": self.submit,
            "batch": self.batch,
            "stats": self.stats,
            "task": self.task,
            "list": self.page,
            "poll": self.poll,
            "result": self.result,
        }

    def submit(self, count: int) -> float:
        cost, answers = self._measure([self._target.request("POST", "/api/v1/tasks", TASK)] * count)
        self._tasks = [msgspec.json.decode(answer)["task_id"] for answer in answers]
        return cost

    def batch(self, count: int) -> float:
        request = self._target.request("POST", "/api/v1/tasks/batch", [TASK] * BATCH)
        return self._measure([request] * max(count // _PER_BATCH, 1))[0]

    def stats(self, count: int) -> float:
        return self._measure([self._target.request("GET", "/api/v1/queue/stats")] * count)[0]

    def task(self, count: int) -> float:
        paths = [f"/api/v1/tasks/{self._tasks[one % len(self._tasks)]}" for one in range(count)]
        return self._measure([self._target.request("GET", path) for path in paths])[0]

    def page(self, count: int) -> float:
        return self._measure([self._target.request("GET", "/api/v1/tasks")] * max(count // _PER_LIST, 1))[0]

    def poll(self, count: int) -> float:
        workers = [self._workers[one % CONNECTIONS] for one in range(count)]
        asked = {"available_capacity": 1}
        requests = [self._target.request("POST", f"/internal/workers/{worker}/poll", asked) for worker in workers]
        cost, answers = self._measure(requests)
        # Any worker may say how an attempt ended: its lease says whose it is.
        leased = [msgspec.json.decode(answer)["tasks"] for answer in answers]
        if not all(leased):
            raise Refused("there were fewer tasks than polls")
        self._leased = [(worker, task) for worker, (task,) in zip(workers, leased, strict=True)]
        return cost

    def result(self, count: int) -> float:
        del count
        requests = [
            self._target.request(
                "POST",
                f"/internal/workers/{worker}/result",
                {"task_id": task["task_id"], "lease": task["lease"], "status": "completed", "result": {"sent": True}},
            )
            for worker, task in self._leased
        ]
        return self._measure(requests)[0]

    def _worker(self, number: int) -> str:
        wish = {"task_types": [TASK["task_type"]], "host": f"bench-{number}"}
        (answer,) = self._target.ask([self._target.request("POST", "/internal/workers/register", wish)])
        worker: str = msgspec.json.decode(answer)["worker_id"]
        return worker

    def _measure(self, requests: Sequence[bytes]) -> tuple[float, list[bytes]]:
        """The CPU of the server for each of these requests, in microseconds; and the answers."""
        before = self._target.spent()
        answers = self._target.ask(requests)
        return (self._target.spent() - before) / len(requests) * 1e6, answers


def paired(targets: tuple[Target, Target], requests: int) -> dict[str, tuple[float, float]]:
    """What each operation costs two servers that take turns, in microseconds of CPU."""
    courses = [Course(target) for target in targets]
    costs: dict[str, tuple[list[float], list[float]]] = {}
    for count in (max(requests // _WARM_UP, 1), requests):
        costs = {name: ([], []) for name in courses[0].operations}
        for turn in _TURNS:
            for name in costs:
                for one in turn:
                    costs[name][one].append(courses[one].operations[name](count))
    return {name: (statistics.mean(own), statistics.mean(others)) for name, (own, others) in costs.items()}


@contextlib.contextmanager
def _target(python: Path, store: str) -> Iterator[Target]:
    with contextlib.ExitStack() as stack:
        if store == "redis":
            store = stack.enter_context(contextlib.contextmanager(started_single)()).url()
        else:
            store = "memory://"
        url, process = stack.enter_context(served(store, python))
        yield stack.enter_context(contextlib.closing(Target(url, process)))


def measure(other: Path, store: str, *, pairs: int, requests: int) -> dict[str, list[tuple[float, float]]]:
    """What each operation costs this checkout and another one, pair by pair."""
    costs: dict[str, list[tuple[float, float]]] = {}
    for turn in range(pairs):
        print(f"pair {turn + 1} of {pairs}", file=sys.stderr)
        with _target(Path(sys.executable), store) as own, _target(other / ".venv" / "bin" / "python", store) as old:
            for name, pair in paired((own, old), requests).items():
                costs.setdefault(name, []).append(pair)
    return costs


def table(store: str, costs: dict[str, list[tuple[float, float]]]) -> str:
    """The medians as Markdown: CPU of either, and how many requests this one answers while the other answers one."""
    lines = [
        "| store | operation | other, µs | this, µs | requests per CPU second, this / other | quartiles |",
        "|---|---|---|---|---|---|",
    ]
    for name, pairs in costs.items():
        own, others = zip(*pairs, strict=True)
        ratios = [old / new for new, old in pairs]
        low, _, high = statistics.quantiles(ratios) if len(ratios) > 1 else ratios * 3
        medians = f"{statistics.median(others):.1f} | {statistics.median(own):.1f} | {statistics.median(ratios):.3f}"
        lines.append(f"| {store} | {name} | {medians} | {low:.3f} to {high:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="a checkout that has its own .venv")
    parser.add_argument("--store", choices=("memory", "redis"), default="memory")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=1_000, help="of each operation, in each turn")
    arguments = parser.parse_args()
    costs = measure(arguments.other, arguments.store, pairs=arguments.pairs, requests=arguments.requests)
    print(table(arguments.store, costs))


if __name__ == "__main__":
    main()
