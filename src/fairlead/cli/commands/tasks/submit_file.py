"""`submit --from-file`: a stream of lines, stored in batches."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from fairlead.cli import showing
from fairlead.cli.explaining import warn_of
from fairlead.cli.moments import check_seconds, moment, parse
from fairlead.cli.options import SharedWithStore, reached
from fairlead.cli.output import complain, console, write, write_json
from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.submission import Submission
from fairlead.engine.engine import Submitted
from fairlead.engine.facade import Facade
from fairlead.engine.inline import run_inline
from fairlead.sdk.definition import template
from fairlead.wire.retrying import RetryRule, rules_of

BATCH: Final = 1_000
STDIN: Final = "-"
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`")


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the file; null is as good as absent."""

    type: str | None = None
    parameters: Raw = Raw(b"{}")
    priority: str | None = None
    queue: str | None = None
    requires: tuple[str, ...] | None = None
    timeout: float | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    retry_rules: tuple[RetryRule, ...] | None = None
    delay: float | None = None
    run_at: str | None = None
    idempotency_key: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] | None = None
    trace: str | None = None
    concurrency_key: str | None = None
    after: tuple[str, ...] | None = None
    on_failure: str | None = None


_decode: Final = msgspec.json.Decoder(Line).decode


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
        parts += [f"{self.known:,} were there already"] if self.known else []
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
        fields = {name: value for name, value in asdict(said).items() if value is not None}
        parameters = bytes(fields.pop("parameters"))
        task_type = fields.pop("type", self._type)
        if task_type is None:
            raise InvalidTask("type", 'the line names no type; add "type", or name one for all lines')
        for name in ("timeout", "delay"):
            check_seconds(name, fields.get(name))
        if "run_at" in fields:
            fields["run_at"] = moment(parse("run_at", fields["run_at"], now))
        if "retry_rules" in fields:
            fields["retry_rules"] = rules_of(fields["retry_rules"])
        given = dict(self._options)
        # A line that says when it is due says it alone.
        if "delay" in fields or "run_at" in fields:
            given.pop("delay", None)
            given.pop("run_at", None)
        return replace(template(task_type, given | fields), parameters=parameters)

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
            task = showing.brief(answer.task, self._engine)
            write_json({"line": number, **showing.with_field(task, existing=answer.existing)})


def _reason(error: Exception) -> str:
    unknown = _UNKNOWN.match(str(error))
    if unknown:
        fields = Line.__struct_fields__
        nearest = difflib.get_close_matches(unknown[1], fields, n=1, cutoff=0.5)
        remedy = f"did you mean {nearest[0]}?" if nearest else f"the fields are {', '.join(fields)}"
        return f"field {unknown[1]!r} is unknown; {remedy}"
    if isinstance(error, msgspec.ValidationError):
        return f"the line does not fit: {error}"
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
