"""`submit --from-file`: a stream of lines, stored in batches."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from fairlead.admin.facade import Facade
from fairlead.app.task_type import named
from fairlead.cli import task_json
from fairlead.cli.commands.show import warn_of
from fairlead.cli.options import SharedWithStore, reached
from fairlead.cli.output import complain, console, write, write_json
from fairlead.cli.times import moment, parse
from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.submission import Submission
from fairlead.core.validation import check_text
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.task_shown import TaskWhole
from fairlead.wire.tasks import (
    RetentionSpans,
    RetryPolicy,
    RetryRule,
    SubmitRequest,
    backoff_of,
    retention_of,
    rules_of,
)

BATCH: Final = 1_000
STDIN: Final = "-"
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`")


LINE: Final[Mapping[str, str]] = {field.encode_name: field.name for field in msgspec.structs.fields(SubmitRequest)}
"""The fields of a line, which are those of a submit over HTTP, and their names in Python, which may be written too."""

SHOWN: Final = tuple(name for name in TaskWhole.__struct_fields__ if name not in LINE)
"""What a task that is shown has beside them: passed over in a line that is such a task, and unknown in any other."""

_SHAPES: Final[Mapping[str, Any]] = {
    "parameters": Raw,
    "retry_policy": RetryPolicy | None,
    "retry_rules": tuple[RetryRule, ...] | None,
    "retention": RetentionSpans | None,
}
"""What is read here; what any other field may be is for the core to say, as everywhere."""
_SPELLINGS: Final = tuple((name, http) for http, python in LINE.items() for name in dict.fromkeys((http, python)))
_LINE: Final = msgspec.defstruct(
    "Line",
    [
        *((name, _SHAPES.get(http, Any), UNSET) for name, http in _SPELLINGS),
        *((name, Raw, UNSET) for name in SHOWN),
    ],
    forbid_unknown_fields=True,
)
_said: Final = attrgetter(*(name for name, _ in _SPELLINGS))
_shown: Final = attrgetter(*SHOWN)
_decode: Final = msgspec.json.Decoder(_LINE).decode


def submit_file(name: str, task_type: str | None, options: Mapping[str, Any], common: SharedWithStore) -> int:
    """Submit every line; 1 if any was refused."""
    with _opened(name) as (file, size), reached(common, create=True) as connection:
        bulk = Bulk(connection.inline(), task_type, options, common.json, "stdin" if name == STDIN else name)
        with _progress(size, shown=not common.json and sys.stderr.isatty()) as advance:
            try:
                bulk.run(file, advance)
            finally:
                bulk.close()
    return 1 if bulk.refused else 0


class Bulk:
    """The work on one file, and the count of it."""

    def __init__(
        self, engine: Facade, task_type: str | None, options: Mapping[str, Any], as_json: bool, name: str
    ) -> None:
        self._engine = engine
        self._type = task_type
        self._options = options
        self._json = as_json
        self._name = name
        self._types: set[str] = set()
        """The types that were looked at."""
        self.stored = 0
        self.known = 0
        self.refused = 0

    def run(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        lines = enumerate(file, start=1)
        while batch := list(islice(lines, BATCH)):
            self._batch([(number, line) for number, line in batch if not line.isspace()])
            advance(sum(len(line) for _, line in batch))

    def close(self) -> None:
        """Say how it went."""
        if self._json:
            return
        parts = [f"{self.stored:,} submitted"]
        parts += [f"{self.known:,} existed already"] if self.known else []
        parts += [f"{self.refused:,} refused"] if self.refused else []
        write(", ".join(parts))

    def _batch(self, lines: list[tuple[int, bytes]]) -> None:
        answers: dict[int, Submitted | FairleadError] = {}
        wishes: dict[int, Submission] = {}
        now = self._engine.clock.now()
        for number, line in lines:
            try:
                wishes[number] = self._read(line, now)
            except InvalidTask as error:
                answers[number] = error
        stored = run_inline(self._engine.submit_many(list(wishes.values())))
        answers |= dict(zip(wishes, stored, strict=True))
        self._warn(stored)
        for number, _ in lines:
            self._report(number, answers[number])

    def _warn(self, answers: Iterable[Submitted | FairleadError]) -> None:
        """Say of each type, once, if no live worker could run its tasks."""
        for answer in answers:
            if isinstance(answer, Submitted) and answer.task.spec.type not in self._types:
                self._types.add(answer.task.spec.type)
                warn_of(run_inline(self._engine.doubts(answer)), as_json=self._json, waits=False)

    def _read(self, line: bytes, now: int) -> Submission:
        try:
            said = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidTask("line", _reason(error)) from None
        fields = _fields(said)
        parameters = bytes(fields.pop("parameters", b"{}"))
        task_type = fields.pop("type", self._type)
        if task_type is None:
            raise InvalidTask("type", 'the line names no type; add "task_type", or name one for all lines')
        if "run_at" in fields:
            fields["run_at"] = moment(parse("run_at", check_text("run_at", fields["run_at"]), now))
        if "retry_rules" in fields:
            fields["retry_rules"] = rules_of(fields["retry_rules"])
        if "backoff" in fields:
            fields["backoff"] = backoff_of(fields["backoff"])
        if "retention" in fields:
            fields["retention"] = retention_of(fields["retention"])
        given = dict(self._options)
        # A line that says when it is due says it alone.
        if "delay" in fields or "run_at" in fields:
            given.pop("delay", None)
            given.pop("run_at", None)
        return replace(named(task_type, given | fields), parameters=parameters)

    def _report(self, number: int, answer: Submitted | FairleadError) -> None:
        if isinstance(answer, FairleadError):
            self.refused += 1
            if self._json:
                write_json({"line": number, "error": str(answer)})
            else:
                complain(f"{self._name}, line {number}: {answer}", as_json=False)
            return
        self.known += answer.existing
        self.stored += not answer.existing
        if self._json:
            task = task_json.brief(answer.task, self._engine)
            write_json({"line": number, **task_json.with_field(task, existing=answer.existing)})


def _fields(line: Any) -> dict[str, Any]:
    """What a line says, by the names in Python; null says nothing."""
    _check_shown(line)
    fields: dict[str, Any] = {}
    for (name, http), value in zip(_SPELLINGS, _said(line), strict=True):
        if value is None or value is UNSET:
            continue
        if LINE[http] in fields:
            raise InvalidTask(http, f"the line says {http} and {name}, which mean the same; leave {name} out")
        fields[LINE[http]] = value
    return fields


def _check_shown(line: Any) -> None:
    """Refuse what tells how a task stands, unless the line is a task as it is shown, with all that it needs."""
    shown = [name for name, value in zip(SHOWN, _shown(line), strict=True) if value is not UNSET]
    if shown and not {"task_id", "status"} <= set(shown):
        raise InvalidTask(shown[0], f"field {shown[0]!r} tells how a task stands and cannot be submitted; leave it out")
    if shown and line.parameters is UNSET:
        raise InvalidTask(
            "parameters",
            "the line is a task without its parameters, which would be lost; write it with `fairlead list --json` or "
            "`fairlead show --json`",
        )


def _reason(error: Exception) -> str:
    unknown = _UNKNOWN.match(str(error))
    if unknown:
        names = dict(_SPELLINGS)
        nearest = difflib.get_close_matches(unknown[1], names, n=1, cutoff=0.5)
        remedy = f"did you mean {names[nearest[0]]}?" if nearest else f"the fields are {', '.join(LINE)}"
        return f"field {unknown[1]!r} is unknown; {remedy}"
    if isinstance(error, msgspec.ValidationError):
        return f"the line does not fit: {error}; write what is expected there"
    return f"the line is not a JSON object: {error}"


@contextlib.contextmanager
def _opened(name: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file and its size, if it has one."""
    if name == STDIN:
        yield sys.stdin.buffer, None
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; only opening it may fail like this
    except OSError as error:
        raise InvalidTask("from_file", f"the file {name!r} cannot be read: {error.strerror}") from None
    with file:
        yield file, os.fstat(file.fileno()).st_size


@contextlib.contextmanager
def _progress(size: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal, which counts bytes read and stored."""
    if not shown:
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("submitting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("submitting", total=size)
        yield lambda amount: progress.advance(bar, amount)
