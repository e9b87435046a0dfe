"""Functions run in processes of their own."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE = 90.0

_PR_SET_SECUREBITS = 28
_SECBIT_NOROOT = 1


def spawning(workers: int) -> ProcessPoolExecutor:
    """Fresh processes, which share nothing with this one."""
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def as_ordinary_user(function: Callable[[], Result]) -> Result:
    """What the function answers in a forked process without the rights of root."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there, function))
    process.start()
    there.close()
    try:
        assert here.poll(PATIENCE), "the process gave no answer"
        answer: Result | str = here.recv()
    finally:
        process.kill()
        process.join()
        here.close()
    if isinstance(answer, _Raised):
        raise AssertionError(f"in the other process: {answer}")
    return answer  # type: ignore[return-value]


class _Raised(str):
    """The traceback of an error that the caller did not expect."""


def _answer(line: Connection[Any, Any], function: Callable[[], Any]) -> None:
    try:
        renounce_rights()
        line.send(function())
    except BaseException:
        line.send(_Raised(traceback.format_exc()))


def renounce_rights() -> None:
    """Root without its capabilities, of this program and the next: the owner of its files, to whom permissions apply.

    Another user's id would do the same, but could not read a checkout that only root may read.
    """
    if os.getuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)
    none = (ctypes.c_uint32 * 6)()
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_SECUREBITS, _SECBIT_NOROOT, 0, 0, 0) != 0 or library.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "the rights of root cannot be renounced")
