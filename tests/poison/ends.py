"""How tasks end that take a poison: a table, by poison and place."""

from __future__ import annotations

import signal
from typing import Final

from msgspec import Struct

from fairlead.core.task import Reason, State, Task

LOOP: Final = "on_loop"
THREAD: Final = "in_thread"
PROCESS: Final = "in_process"
PLACES: Final = (LOOP, THREAD, PROCESS)


class End(Struct, frozen=True):
    """How a task that may not be tried again is to stand in the end."""

    state: State
    reason: Reason
    type: str | None = None
    words: str = ""
    """Among those of its failure."""
    result: bytes | None = None

    def matches(self, task: Task) -> bool:
        status, failure = task.status, task.status.failure
        told = ("", "") if failure is None else (failure.type, failure.message)
        return (
            (status.state, status.reason, status.result) == (self.state, self.reason, self.result)
            and (self.type or "") == told[0]
            and self.words in told[1]
            and status.attempts == 1
        )


def completes(result: bytes | None = None) -> End:
    return End(State.COMPLETED, Reason.COMPLETED, result=result)


def fails(kind: str, words: str = "") -> End:
    """A retry was spent, and there was none."""
    return End(State.DEAD_LETTER, Reason.RETRIES_USED_UP, kind, words)


def is_rejected(kind: str, words: str = "") -> End:
    """No other attempt can help."""
    return End(State.FAILED, Reason.REJECTED, kind, words)


def has_no_json_form(words: str) -> End:
    return is_rejected("ResultNotEncodable", words)


def crashes(words: str) -> End:
    """The process of the handler is gone, and no more."""
    return End(State.DEAD_LETTER, Reason.CRASH_LOOP, "ProcessDied", words)


TIMES_OUT: Final = fails("Timeout", "stopped after its timeout of 1 s")
LOSES_ITS_WORKER: Final = End(State.DEAD_LETTER, Reason.CRASH_LOOP, "WorkerLost", "stopped renewing its lease")

SAME: Final[dict[str, End]] = {
    "value_error": fails("ValueError", "plain"),
    "base_exception": is_rejected("Base", "base"),
    "generator_exit": is_rejected("GeneratorExit", "from within"),
    "keyboard_interrupt": is_rejected("KeyboardInterrupt", "from within"),
    "stop_iteration": fails("RuntimeError", "raised StopIteration"),
    "stop_async_iteration": fails("StopAsyncIteration", "no more"),
    "cancelled_error": fails("CancelledError", "the handler cancelled itself"),
    "recursion": fails("RecursionError", "maximum recursion depth exceeded"),
    "deep_group": fails("ExceptionGroup", "nested (1 sub-exception)"),
    "wide_group": is_rejected("BaseExceptionGroup", "wide (3 sub-exceptions)"),
    "str_raises": fails("StrRaises", "its str() raised RuntimeError"),
    "str_exits": fails("StrExits", "its str() raised SystemExit"),
    "str_is_no_text": fails("StrIsNone", "its str() raised TypeError"),
    "repr_raises": fails("KeyError", "its str() raised RuntimeError"),
    "odd_text": fails("OddWords", "odd words"),
    "large_message": fails("ValueError", "mmmm…"),
    "large_repr": fails("ValueError", "rrrr…"),
    "surrogates": fails("ValueError", "half a pair: \\ud800, and nothing: \0"),
    "liar": fails("Liar", "who is it"),
    "impostor": fails("Impostor", "not a Reject"),
    "odd_metaclass": fails("OddClass", "odd"),
    "odd_name": fails("Name of " + "x" * 192 + "…", "odd"),
    "odd_retry": fails("OddRetry", "odd retry"),
    "cyclic_causes": fails("ValueError", "first"),
    "long_chain": fails("ValueError", "99999"),
    "closed_error": fails("Closed", "words"),
    "odd_notes": fails("ValueError", "with odd notes"),
    "notes_exit": fails("NotesExit", "with notes that exit"),
    "large_notes": fails("ValueError", "with large notes"),
    "group_of_large_messages": fails("ExceptionGroup", "large (90 sub-exceptions)"),
    "very_wide_group": fails("ExceptionGroup", "very wide (1000000 sub-exceptions)"),
    "deep_traceback": fails("ValueError", "at the bottom"),
    "odd_syntax_error": fails("SyntaxError", "bad syntax"),
    "no_json_form": has_no_json_form("Encoding objects of type object is unsupported - at `$.here[1].deeper`"),
    "complex_number": has_no_json_form("Encoding objects of type complex is unsupported - at `$[0]`"),
    "not_a_number": has_no_json_form("nan is not a number that JSON has - at `$.mean[1]`"),
    "raw_not_a_number": has_no_json_form("JSON is malformed: invalid character (byte 0) - at `$`"),
    "raw_cut_off": has_no_json_form("at `$.here[1]`"),
    "raw_no_text": has_no_json_form("at `$[0]`"),
    "raw_json": completes(b'[null,{"a": 1}]'),
    "infinity": has_no_json_form("-inf is not a number that JSON has - at `$.most[1]`"),
    "infinity_in_a_struct": has_no_json_form("inf is not a number that JSON has - at `$[1].x`"),
    "surrogate_returned": has_no_json_form("surrogates not allowed - at `$.words[0]`"),
    "huge_number": has_no_json_form("at `$.digits`"),
    "cyclic": has_no_json_form("maximum recursion depth exceeded"),
    "deep": has_no_json_form("maximum recursion depth exceeded"),
    "too_large": is_rejected("PayloadTooLarge", "300,002"),
    "unreadable": has_no_json_form("at `$.inside`"),
    "generator": has_no_json_form("Encoding objects of type generator is unsupported - at `$`"),
    "coroutine": has_no_json_form("Encoding objects of type coroutine is unsupported - at `$[0]`"),
    "exception_returned": has_no_json_form("Encoding objects of type ValueError is unsupported - at `$`"),
    "member_that_is_no_number": has_no_json_form("nan is not a number that JSON has - at `$.measures[0]`"),
    "odd_dict": completes(b'{"a":1}'),
    "odd_list": completes(b"[1,2]"),
    "odd_words": has_no_json_form("Encoding objects of type OddText is unsupported - at `$[1]`"),
    "odd_key": has_no_json_form("Only dicts with str-like or number-like keys are supported - at `$.inside`"),
    "nothing_said": completes(b'"a\\u0000b"'),
    "large_number": completes(b"1" + b"0" * 400),
    "bytes_returned": completes(b'"AP8="'),
    "cannot_be_deleted": has_no_json_form("Encoding objects of type CannotBeDeleted is unsupported - at `$`"),
    "leaves_threads": completes(b'"left"'),
    "swallows_cancel": TIMES_OUT,
    "changes_folder": completes(b'"moved"'),
    "closes_stdout": completes(b'"silent"'),
    "replaces_streams": completes(b'"replaced"'),
    "closes_the_loop": fails("RuntimeError", "Cannot close a running event loop"),
    "traces_and_raises": fails("ValueError", "traced"),
    "cancels_itself": fails("CancelledError", "the handler cancelled itself"),
    "deletes_its_module": completes(b'"deleted"'),
    "forks": completes(b'"parent"'),
    "forks_and_awaits": completes(b'"parent"'),
    "forks_and_raises": completes(b'"parent"'),
    "forks_and_reports": completes(b'"parent"'),
    "forks_and_leaves_a_child": completes(b'"parent"'),
    "uses_processes": completes(b"[1,2]"),
    "prints": completes(b'"printed"'),
    "closes_the_standard_streams": completes(b'"closed"'),
    "sets_a_timeout_for_all_sockets": completes(b'"set"'),
    "lowers_the_recursion_limit": completes(b'"low"'),
    "makes_warnings_errors": completes(b'"strict"'),
    "breaks_the_log": TIMES_OUT,
    "clears_the_environment": completes(b'"clear"'),
    "stops_collecting_garbage": completes(b'"stopped"'),
    "hangs_at_the_exit": completes(b'"later"'),
    "leaves_an_executor": completes(b'"left"'),
    "forks_in_a_task": completes(b'"parent"'),
    "forks_in_a_callback": completes(b'"parent"'),
    "forks_twice": completes(b'"parent"'),
}
"""What fares alike in every place."""

DIFFERENT: Final[dict[str, dict[str, End]]] = {
    "system_exit": {
        LOOP: is_rejected("SystemExit", "3"),
        THREAD: is_rejected("SystemExit", "3"),
        PROCESS: crashes("exited with code 3"),
    },
    "exits_well": {
        LOOP: is_rejected("SystemExit", "0"),
        THREAD: is_rejected("SystemExit", "0"),
        PROCESS: crashes("exited with code 0"),
    },
    "exits_with_words": {
        LOOP: is_rejected("SystemExit", "the settings are missing"),
        THREAD: is_rejected("SystemExit", "the settings are missing"),
        PROCESS: crashes("the handler ended its process: the settings are missing"),
    },
    "exits_with_an_object": {
        LOOP: is_rejected("SystemExit", "its str() raised RuntimeError"),
        THREAD: is_rejected("SystemExit", "its str() raised RuntimeError"),
        PROCESS: crashes("the handler ended its process: its str() raised RuntimeError"),
    },
    "exits_oddly": {
        LOOP: is_rejected("OddExit", "5"),
        THREAD: is_rejected("OddExit", "5"),
        PROCESS: crashes("exited with code 5"),
    },
    "exits_in_a_callback": {
        LOOP: completes(b'"went on"'),
        THREAD: is_rejected("SystemExit", "3"),
        PROCESS: crashes("exited with code 3"),
    },
    "leaves_a_task": {LOOP: completes(b'"left"'), THREAD: TIMES_OUT, PROCESS: TIMES_OUT},
    "hears_no_signals": {
        LOOP: completes(b'"deaf"'),
        THREAD: fails("ValueError", "set_wakeup_fd only works in main thread"),
        PROCESS: completes(b'"deaf"'),
    },
    "becomes_a_daemon": {PROCESS: crashes("exited with code 0")},
    "becomes_another_program": {PROCESS: crashes("or ran another program in its place")},
    "forks_past_python": {PROCESS: completes(b'"parent"')},
    "segfaults": {PROCESS: crashes("killed by SIGSEGV")},
    "stops_itself": {PROCESS: TIMES_OUT},
    "memory_error": {
        LOOP: fails("MemoryError", "all of it"),
        THREAD: fails("MemoryError", "all of it"),
        PROCESS: crashes("ran out of memory"),
    },
    "exits_in_a_task": {
        LOOP: is_rejected("SystemExit", "4"),
        THREAD: is_rejected("SystemExit", "4"),
        PROCESS: crashes("exited with code 4"),
    },
    "much_too_large": dict.fromkeys(PLACES, is_rejected("PayloadTooLarge")),
    "traces": {
        # Python ends a trace that raises, and has the call raise that was traced.
        LOOP: fails("ZeroDivisionError", "division by zero"),
        THREAD: completes(b'"traced"'),
        PROCESS: completes(b'"traced"'),
    },
    "profiles": dict.fromkeys(PLACES, fails("ZeroDivisionError", "division by zero")),
    "changes_signal_handlers": {
        LOOP: completes(b'"deaf"'),
        THREAD: fails("ValueError", "signal only works in main thread"),
        PROCESS: completes(b'"deaf"'),
    },
    "stops_the_loop": {
        LOOP: completes(b'"went on"'),
        THREAD: fails("RuntimeError", "Event loop stopped before Future completed"),
        PROCESS: fails("RuntimeError", "Event loop stopped before Future completed"),
    },
    "str_hangs": {THREAD: TIMES_OUT, PROCESS: TIMES_OUT},
    "blocks": {THREAD: TIMES_OUT, PROCESS: TIMES_OUT},
    "closes_all_descriptors": {PROCESS: crashes("lost its connection to the worker")},
    "writes_to_every_descriptor": {PROCESS: crashes("said what is no answer of its task")},
    "exits": {PROCESS: crashes("exited with code 7")},
    "killed": {PROCESS: crashes("killed by SIGKILL")},
    "aborts": {PROCESS: crashes("killed by SIGABRT")},
}
"""What does not, or is the end of the worker in some places."""

SPOILS: Final = (
    "deep_traceback",
    "sets_a_timeout_for_all_sockets",
    "hears_no_signals",
    "leaves_an_executor",
    "hangs_at_the_exit",
    "makes_warnings_errors",
    "clears_the_environment",
    "stops_collecting_garbage",
    "breaks_the_log",
    "lowers_the_recursion_limit",
    "closes_the_standard_streams",
)
"""What spoils a process for what runs beside it: one is taken after the other."""

HARMLESS: Final[dict[tuple[str, str], End]] = {
    (place, name): ends[place]
    for place in PLACES
    for name, ends in ({name: dict.fromkeys(PLACES, end) for name, end in SAME.items()} | DIFFERENT).items()
    if place in ends
}
"""What a worker survives."""


DEADLY: Final[dict[tuple[str, str], tuple[int, str]]] = {
    (LOOP, "exits"): (7, ""),
    (THREAD, "exits"): (7, ""),
    (LOOP, "killed"): (-signal.SIGKILL, ""),
    (THREAD, "killed"): (-signal.SIGKILL, ""),
    (LOOP, "aborts"): (-signal.SIGABRT, "Fatal Python error: Aborted"),
    (THREAD, "aborts"): (-signal.SIGABRT, "Fatal Python error: Aborted"),
    (LOOP, "segfaults"): (-signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
    (THREAD, "segfaults"): (-signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
    (LOOP, "becomes_a_daemon"): (0, ""),
    (THREAD, "becomes_a_daemon"): (0, ""),
    (LOOP, "becomes_another_program"): (0, ""),
    (THREAD, "becomes_another_program"): (0, ""),
    (LOOP, "closes_all_descriptors"): (-signal.SIGABRT, "Fatal Python error: Aborted"),
    (THREAD, "closes_all_descriptors"): (-signal.SIGABRT, "Fatal Python error: Aborted"),
}
"""What is the end of the worker, by its exit code and a word in its log: its task was lost with it, truly."""

HOLDS_UP: Final = ("blocks", "str_hangs")
"""What holds up the event loop past the timeout, if it runs there."""
