"""Every endpoint, tried by schemathesis with what its schema allows, what it forbids, and in sequences along its links.

python -m tests.server.exercising EXAMPLES SEQUENCED SEED
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from base64 import b64encode
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import schemathesis
from hypothesis import strategies as st
from msgspec import Struct
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.python.asgi import shutdown_lifespans
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.query.query import quoted
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.inline import run_inline
from fairlead.server.app import build
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from tests.server.prepared import SCHEDULE, furnish, prepare

QUICK: Final = ServerSettings(wait_seconds=0.02, rate_limit=0)
"""Long polls come back at once, and nobody asks too often."""

EXCLUDED: Final = {
    # A stream of events does not end; its own tests hear it.
    "/api/v1/events",
}
"""The paths that are left out."""

UNCHECKED: Final = {
    # DELETE cancels a task, which can be looked at until its retention ends.
    ("/api/v1/tasks/{task_id}", "use_after_free"),
    ("/api/v1/tasks/{task_id}/explain", "use_after_free"),
    # Each task of a batch, and each of several results, is refused by itself; the whole is answered with 200 or 207.
    ("/api/v1/tasks/batch", "negative_data_rejection"),
    ("/internal/workers/{worker_id}/result", "negative_data_rejection"),
    # Of two marks the second may not be the lower one, which a schema cannot say.
    ("/api/v1/queues/{queue}", "positive_data_acceptance"),
    # The id is all that they take, and a link may give a good one to a case that was to have a bad one.
    ("/api/v1/dlq/{task_id}", "negative_data_rejection"),
    ("/api/v1/dlq/{task_id}/replay", "negative_data_rejection"),
}
"""The checks that do not hold, by path."""


_MOST_TURNS: Final = 40
_PROTOCOL: Final = (
    "tasks_submit",
    "tasks_show",
    "workers_register",
    "workers_poll",
    "workers_progress",
    "workers_result",
)
"""What it takes to submit a task and run it."""


_APART: Final = {
    "SubmitRequest": ("queue", "required_capabilities", "run_at", "delay_seconds", "trace_id"),
    "RegisterRequest": ("worker_id", "queues", "task_types"),
    "PollRequest": ("capabilities", "available_capacity"),
}


class ServedApplication:
    """The application on an empty memory store, opened on the loop of whoever serves it."""

    key: ClassVar[str] = ""
    """The key of the one that was opened last."""
    store: ClassVar[Store]
    """Its store."""

    def __init__(self) -> None:
        self._state: ServerState | None = None
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            assert self._app is not None
            await self._app(scope, receive, send)
            return
        await receive()
        await self._open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> None:
        ServedApplication.store = MemoryStore()
        engine = AdminEngine(ServedApplication.store)
        await furnish(engine)
        made = await Keyring(engine).create("schemathesis", [Role.ADMIN])
        ServedApplication.key = made.text
        self._state = ServerState(engine, QUICK)
        self._app = build(self._state)

    async def _close(self) -> None:
        assert self._state is not None
        self._state.stopping.set()
        await asyncio.sleep(0)  # What waits for it ends in the next turn of the loop.
        await self._state.engine.close()


class Outcome(Struct):
    """What became of a run."""

    cases: Counter[str]
    """How many there were, by phase."""
    answers: Counter[tuple[str, int]]
    """How often each operation was answered with each status."""
    failures: dict[str, str]
    """The first of each sort, by operation and title, with how to repeat it."""

    @property
    def total(self) -> int:
        return sum(self.cases.values())

    def unanswered(self) -> set[str]:
        """The operations that never succeeded, so that little can be said of them."""
        tried = {label for label, _ in self.answers}
        return tried - {label for label, status in self.answers if status < 300}

    def __str__(self) -> str:
        said = [f"{self.total:,} cases: {', '.join(f'{count:,} {phase}' for phase, count in self.cases.items())}"]
        said += [f"{count:5,} {label} {status}" for (label, status), count in sorted(self.answers.items())]
        return "\n".join([*said, *(f"{title}\n{how}" for title, how in self.failures.items())])


def exercise(examples: int, sequenced: int, seed: int, *, coverage: bool = True) -> Outcome:
    """Try every operation with this many examples, then sequences of them until there were so many cases.

    `coverage` adds a case for each limit and each kind of value of each field.
    """
    schemathesis.openapi.format("date-time", _moments())
    app = ServedApplication()
    document = schemathesis.openapi.from_asgi("/openapi.json", app).raw_schema
    document["paths"] = {path: methods for path, methods in document["paths"].items() if path not in EXCLUDED}
    outcome = Outcome(Counter(), Counter(), {})
    phases = {"stateful": {"enabled": False}, "coverage": {"enabled": coverage}}
    _run(app, document, _config(app.key, examples, seed, phases), outcome)
    phases = {name: {"enabled": False} for name in ("examples", "coverage", "fuzzing")}
    # A run of sequences ends when Hypothesis finds that the same requests get other answers, such as another task's id.
    for turn in range(_MOST_TURNS):
        if outcome.cases["stateful"] >= sequenced:
            break
        sequences = _only(_PROTOCOL, _rooted(document)) if turn % 2 == 0 else _rooted(document)
        _run(app, sequences, _config(app.key, 100, seed + turn, phases), outcome)
    shutdown_lifespans()
    return outcome


def _run(app: ServedApplication, document: dict[str, Any], config: SchemathesisConfig, outcome: Outcome) -> None:
    schema = schemathesis.openapi.from_dict(document, config=config)
    schema.app = app
    for event in from_schema(schema).execute():
        match event:
            case ScenarioFinished():
                _note(event, outcome)
            case NonFatalError():
                how = "".join(traceback.format_exception(event.value))
                outcome.failures.setdefault(f"{event.label}: {type(event.value).__name__}", how)
            case FatalError():
                raise event.exception
            case _:
                pass


def _config(key: str, examples: int, seed: int, phases: dict[str, Any]) -> SchemathesisConfig:
    unchecked = [{"include-path": path, "checks": {check: {"enabled": False}}} for path, check in sorted(UNCHECKED)]
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "continue-on-failure": True,
            "operations": unchecked,
            "auth": {"openapi": {"key": {"bearer": key}}},
            "generation": {"max-examples": examples, "database": "none", "no-shrink": True, "deterministic": True},
            "phases": phases,
        }
    )


def _rooted(document: dict[str, Any]) -> dict[str, Any]:
    """The document without the fields that keep tasks and workers apart, so that sequences get somewhere.

    Two of them, moreover, look like references to what some other operation would have to make, and sequences only
    begin with operations that need nothing.
    """
    rooted: dict[str, Any] = json.loads(json.dumps(document))
    for shape, names in _APART.items():
        for name in names:
            del rooted["components"]["schemas"][shape]["properties"][name]
    return rooted


def _only(names: Collection[str], document: dict[str, Any]) -> dict[str, Any]:
    """The document with these operations and the links between them, so that sequences do not stray."""
    for path, methods in list(document["paths"].items()):
        kept = {method: operation for method, operation in methods.items() if operation["operationId"] in names}
        document["paths"][path] = kept
        for operation in kept.values():
            for answer in operation["responses"].values():
                answer["links"] = {name: link for name, link in answer.get("links", {}).items() if name in names}
    return document


def _moments() -> st.SearchStrategy[str]:
    """Moments in the years that a task can be due in, which JSON Schema cannot say."""
    between = st.datetimes(datetime(1970, 1, 1), datetime(2255, 1, 1), timezones=st.just(UTC))
    return between.map(lambda moment: moment.isoformat().replace("+00:00", "Z"))


_asked: Final[Counter[str]] = Counter()
"""How often each path was asked for something that was meant to be accepted."""


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: Any) -> None:
    """Keep what is meant to be accepted from breaking the rules that the schema can only give in words."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.path == "/api/v1/session" and isinstance(case.body, dict) and len(str(case.body["key"])) % 2:
        case.body["key"] = ServedApplication.key  # Every other login is with a key that is good.
    if "schedule" in (case.path_parameters or {}):
        case.path_parameters["schedule"] = SCHEDULE  # One that is there.
    _asked[case.path] += 1
    if _asked[case.path] % 2:  # Every other request is about something that is there.
        engine = AdminEngine(ServedApplication.store, batching=False)
        # In place: of what is given anew schemathesis judges once more whether it was meant to be accepted.
        case.path_parameters.update(run_inline(prepare(engine, case.path, case.body)))
    if case.path.endswith("/purge") and isinstance(case.body, dict) and case.path_parameters:
        case.body["confirm"] = case.path_parameters["queue"]  # A purge names its queue twice.
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)  # Only a page before can give one.
        if case.query.get("q"):
            case.query["q"] = _query(case.query["q"])
    case.body = _sound(case.body)


def _query(text: object) -> str:
    """A query has a grammar; words in quotes always are one."""
    return quoted(f"x{text}")


def _sound(body: Any) -> Any:
    match body:
        case float() if body.is_integer():  # JSON Schema takes 1.0 for a whole number; the server wants it written 1.
            return int(body)
        case list():
            return [_sound(each) for each in body]
        case dict():
            sound = {key: _sound(value) for key, value in body.items()}
            if sound.get("run_at") is not None and sound.get("delay_seconds") is not None:
                sound.pop("delay_seconds")  # A task is due at one moment.
            if isinstance(sound.get("results"), list):  # Several results, or one: fields of both are not passed over.
                sound = {
                    key: value for key, value in sound.items() if key not in ("task_id", "lease", "status", "error")
                }
            if sound.get("after"):  # Only tasks that are there can be waited for.
                sound["after"] = []
            if "action" in sound and sound.get("query"):
                sound["query"] = _query(sound["query"])
            if isinstance(sound.get("parts"), dict):  # Bytes, in base64.
                sound["parts"] = {
                    name: b64encode(str(part).encode("utf-8", "replace")).decode()
                    for name, part in sound["parts"].items()
                }
            rules = sound.get("retry_rules")
            # What is free to be any JSON may have a key of this name too.
            if isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules):
                # One rule for each error, by its name; and one that rejects says nothing else.
                sound["retry_rules"] = [
                    {**rule, "error": f"E{number}", "reject": False} for number, rule in enumerate(rules)
                ]
            for name in ("type_running", "type_rate"):
                if isinstance(sound.get(name), dict):  # By task types, which are names.
                    sound[name] = {f"type{number}": value for number, value in enumerate(sound[name].values())}
            if "cron" in sound:  # An expression and a zone are texts with rules of their own; an end is not yet over.
                sound |= {"cron": "@daily", "timezone": "UTC", "start_at": None, "end_at": None}
            return sound
        case _:
            return body


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """A batch of one line."""
    return json.dumps(value).encode() + b"\n"


def _note(event: ScenarioFinished, outcome: Outcome) -> None:
    outcome.cases[event.phase.value] += len(event.recorder.interactions)
    for case_id, node in event.recorder.cases.items():
        interaction = event.recorder.interactions.get(case_id)
        if interaction is not None and interaction.response is not None:
            outcome.answers[node.value.operation.label, interaction.response.status_code] += 1
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.status is Status.FAILURE and check.failure_info is not None:
                failure = check.failure_info.failure
                title = f"{failure.operation}: {failure.title}"
                outcome.failures.setdefault(title, _story(event, case_id, failure))


def _story(event: ScenarioFinished, case_id: str, failure: Any) -> str:
    interaction = event.recorder.interactions.get(case_id)
    response = None if interaction is None else interaction.response
    said = "" if response is None else f"{response.status_code} {response.content[:500]!r}"
    request = None if interaction is None else interaction.request
    asked = "" if request is None else f"{request.method} {request.uri} {(request.body or b'')[:500]!r}"
    return "\n".join(each for each in (failure.message, asked, said) if each)


if __name__ == "__main__":
    done = exercise(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(f"{done}\n")
    sys.exit(bool(done.failures))
