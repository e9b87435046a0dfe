"""The memory store: the reference for every other store, and a real one for work that may die with its process.

`store` is the contract, under one lock. It is made of parts, whose owner holds that lock: `lanes` says how the tasks
stand, `concurrency_keys` who is first of each key, `limits` what limits leave room for, `ids` which tasks there are
in the order of their ids, `doorbell` who waits for work. `records` and `feed` are what is kept besides tasks.
"""

from fairlead.storage.memory.store import MemoryStore

__all__ = ["MemoryStore"]
