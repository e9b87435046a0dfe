"""Stores that each break one clause of the contract, as a store may well do by mistake.

They are made of the memory store's own operations, so that each is wrong in one thing only.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Final

from tests.conformance import (
    wrong_adding,
    wrong_claiming,
    wrong_depending,
    wrong_feeding,
    wrong_holding,
    wrong_limiting,
    wrong_reading,
    wrong_turns,
    wrong_waiting,
)
from tests.conformance.wrong_store import WrongStore


def _stores_of(module: ModuleType) -> list[type[WrongStore]]:
    """The wrong stores that a module defines, as they stand in it."""
    return [
        store
        for store in vars(module).values()
        if inspect.isclass(store) and issubclass(store, WrongStore) and store.__module__ == module.__name__
        if store.breaks
    ]


WRONG_STORES: Final = [
    store
    for module in (
        wrong_adding,
        wrong_claiming,
        wrong_limiting,
        wrong_holding,
        wrong_depending,
        wrong_reading,
        wrong_feeding,
        wrong_waiting,
        wrong_turns,
    )
    for store in _stores_of(module)
]
