#!/usr/bin/env python
"""Writes docs/explanation/lifecycle.md from the table of transitions.

    python scripts/lifecycle_page.py            write the page
    python scripts/lifecycle_page.py --check    exit 1 if it is not up to date

The arrows come from `fairlead.core.transitions.TRANSITIONS`; only the sentence that tells each arrow lives here. An
arrow without a sentence, or a sentence without an arrow, is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, TypeAlias

from fairlead.core.instant import DAY, SECOND, Span
from fairlead.core.settings import Rules, Settings
from fairlead.core.task import ENDED, Priority, State
from fairlead.core.transitions import HISTORY_LIMIT, TRANSITIONS

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "lifecycle.md"

REMOVED: Final = "removed"
Arrow: TypeAlias = tuple[str, str, str]
"""From a state, by an event, to a state or `removed`."""

SENTENCES: Final[dict[Arrow, str]] = {
    ("scheduled", "alarm", "queued"): "Its moment has come, or all it waited for has ended; its wait counts from then.",
    ("scheduled", "alarm", "scheduled"): "All it waited for has ended, and its own moment is yet to come.",
    ("scheduled", "alarm", "cancelled"): "A task that it waited for did not complete, or its expiry has passed.",
    ("scheduled", "cancel", "cancelled"): "It has not begun, so it ends at once.",
    ("scheduled", "prioritize", "scheduled"): "Someone changed its priority; it is due at the same moment.",
    ("scheduled", "purge", REMOVED): "Its queue is emptied, and nothing is left of it.",
    ("queued", "claim", "executing"): "A worker takes it under a new lease; this is one more attempt.",
    ("queued", "cancel", "cancelled"): "It has not begun, so it ends at once.",
    ("queued", "prioritize", "queued"): "Someone changed its priority; it keeps its wait.",
    ("queued", "purge", REMOVED): "Its queue is emptied, and nothing is left of it.",
    ("executing", "complete", "completed"): "The attempt succeeded, which counts even if cancel was asked meanwhile.",
    ("executing", "fail", "scheduled"): "It is retried after its backoff, or after the time that the handler named.",
    ("executing", "fail", "queued"): "It is retried at once, because its backoff or the handler said so.",
    ("executing", "fail", "failed"): "The error is not retriable: its handler or a retry rule says so.",
    ("executing", "fail", "dead_letter"): "Its retries are used up.",
    ("executing", "fail", "cancelled"): "Cancel was asked, so it is not retried.",
    ("executing", "time out", "scheduled"): "It is retried after its backoff, and the next attempt may take longer.",
    ("executing", "time out", "queued"): "It is retried at once, and the next attempt may take longer.",
    ("executing", "time out", "failed"): "A retry rule rejects timeouts.",
    ("executing", "time out", "dead_letter"): "Its retries are used up.",
    ("executing", "time out", "cancelled"): "Cancel was asked, so it is not retried.",
    ("executing", "crash", "scheduled"): "It took its own process down; it runs again after its backoff.",
    ("executing", "crash", "queued"): "It took its own process down; it runs again at once.",
    ("executing", "crash", "dead_letter"): "It has crashed more often than `max_crashes` allows: a crash loop.",
    ("executing", "crash", "cancelled"): "Cancel was asked, so it does not run again.",
    ("executing", "hand back", "queued"): "Its worker shuts down; it keeps its place in the line and spends no retry.",
    ("executing", "hand back", "scheduled"): "Its worker gives it back for later; it spends no retry.",
    ("executing", "hand back", "cancelled"): "Cancel was asked, so it does not run again.",
    ("executing", "return", "queued"): "Its claim is undone before its worker saw it; it waits as if never taken.",
    ("executing", "expire", "cancelled"): "It was claimed after its expiry, and ends before its worker sees it.",
    ("executing", "confirm cancel", "cancelled"): "Its worker has stopped it because cancel was asked.",
    ("executing", "cancel", "executing"): "Its worker learns of it within about a second, and stops it.",
    ("executing", "alarm", "scheduled"): "Its worker is lost; it runs again after its backoff and spends no retry.",
    ("executing", "alarm", "queued"): "Its worker is lost; it runs again at once and spends no retry.",
    ("executing", "alarm", "dead_letter"): "It has lost more workers than `max_crashes` allows: a crash loop.",
    ("executing", "alarm", "cancelled"): "Its worker is lost and cancel was asked.",
    **{(state, "alarm", REMOVED): "Its retention, and that of its idempotency key, has ended." for state in ENDED},
    **{(state, "discard", REMOVED): "Someone removed it before its retention ended." for state in ENDED},
    ("failed", "replay", "queued"): "Someone wants it to run again, by default with all its retries.",
    ("dead_letter", "replay", "queued"): "Someone wants it to run again, by default with all its retries.",
    ("cancelled", "replay", "queued"): "Someone wants it to run after all.",
}

_PAGE: Final = """\
<!-- Generated from src/fairlead/core/transitions.py by scripts/lifecycle_page.py: change those, not this page. -->

# The life of a task

Which states a task can be in, and what moves it from one to another: the state machine of fairlead. A task is always in
one of {states} states. It starts as `queued`, or as `scheduled` if it was submitted for later or waits for other tasks,
and ends as {ended}.

An event moves it. Which states an event may lead to is a table in one file; every store is tested against it, and this
page is generated from it.

```mermaid
stateDiagram-v2
{diagram}
```

Every arrow is one atomic compare-and-set in the store. It adds one to the task's `version` and, except for the claim
and a second request to cancel, a line to its history, which keeps the newest {history}.

## Where events come from

- **claim** comes from a worker that asks for work.
- **complete**, **fail**, **time out**, **crash**, **hand back** and **confirm cancel** come from the holder of the
  task's lease. From a worker whose lease is lost they are refused; repeated by the same holder they are acknowledged.
- **return** happens during a claim: the worker belongs to one tenant, and the task to another.
- **alarm** is a moment that is stored with the task: it is due, its lease was not renewed, or its retention has ended.
  Any process that sweeps (reaps) may notice it.
- **cancel**, **replay**, **prioritize**, **discard** and **purge** are requested by people and programs, through the
  API, the command line or the dashboard.

## Every arrow

| from | event | to | what it means |
|---|---|---|---|
{table}

Every other combination is refused with `WrongState`, which names the states that allow the event.

## The default numbers

| | {priorities} |
|---|{rules}|
| retries | {retries} |
| timeout | {timeouts} |

A task may set its own.

- The backoff is {initial}, times {factor:g} for each retry already spent, at most {ceiling}; jitter moves it by up to
  {jitter:.0%} either way.
  [A longest delay for each priority](../reference/settings.md#delayceilings) can be set beside it.
- After a timeout the next attempt may take {growth:g} times as long, up to {timeout_ceiling}; after any failure, if
  `timeout_growth_after_failure` says so.
- A lease lasts {lease} and is renewed every {heartbeat}. Crashes and lost workers have a budget of their own: the
  task runs again {crashes} times, and none of them spends its retries.
- An ended task is kept for {kept}.
"""


def arrows() -> list[Arrow]:
    """Every arrow of the table, in its order."""
    places = [*State, REMOVED]
    return [
        (state, event, target)
        for state in State
        for (source, event), targets in TRANSITIONS.items()
        if source is state
        for target in sorted((REMOVED if target is None else target for target in targets), key=places.index)
    ]


def page() -> str:
    """The whole page."""
    known = arrows()
    if untold := [arrow for arrow in known if arrow not in SENTENCES]:
        raise SystemExit(f"no sentence tells the arrows {untold}; add them to SENTENCES in {__file__}")
    if unknown := [arrow for arrow in SENTENCES if arrow not in known]:
        raise SystemExit(f"there are no arrows {unknown}; remove their sentences from SENTENCES in {__file__}")
    settings, rules = Settings(), Rules()
    defaults, backoff = settings.defaults, settings.defaults.backoff
    return _PAGE.format(
        states=_WORDS[len(State)],
        ended=_either([f"`{state}`" for state in State if state.ended]),
        diagram=_diagram(known),
        history=HISTORY_LIMIT,
        table="\n".join(
            f"| `{source}` | {event} | {_place(target)} | {SENTENCES[source, event, target]} |"
            for source, event, target in known
        ),
        priorities=" | ".join(priority.word for priority in Priority),
        rules="|".join("---" for _ in Priority),
        retries=" | ".join(str(defaults.of(priority).max_retries) for priority in Priority),
        timeouts=" | ".join(_time(defaults.of(priority).timeout) for priority in Priority),
        initial=_time(backoff.initial),
        factor=backoff.factor,
        ceiling=_time(backoff.ceiling),
        jitter=backoff.jitter,
        growth=rules.timeout_growth,
        timeout_ceiling=_time(rules.timeout_ceiling),
        lease=_time(settings.lease),
        heartbeat=_time(settings.heartbeat),
        crashes=defaults.max_crashes,
        kept=", ".join(f"{_time(rules.retention.of(state))} if `{state}`" for state in State if state.ended),
    )


def _diagram(known: list[Arrow]) -> str:
    labels: dict[tuple[str, str], list[str]] = {}
    for source, event, target in known:
        labels.setdefault((source, "[*]" if target == REMOVED else target), []).append(event)
    lines = ["[*] --> queued: submit", "[*] --> scheduled: submit for later"]
    lines += [f"{source} --> {target}: {', '.join(events)}" for (source, target), events in labels.items()]
    return "\n".join(f"    {line}" for line in lines)


def _place(target: str) -> str:
    return "*removed*" if target == REMOVED else f"`{target}`"


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _time(of: Span) -> str:
    if of % DAY == 0:
        return f"{of // DAY} day{'s' if of > DAY else ''}"
    return f"{of / SECOND:g} s"


_WORDS: Final = {6: "six", 7: "seven", 8: "eight", 9: "nine"}


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE} is not up to date; run python scripts/lifecycle_page.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
