"""The Python side of the HTTP API: tasks and leases of a store that is behind a server.

It is written once, as coroutines, over a transport that either suspends or blocks: the same code serves event loops
and, driven by `fairlead.engine.runtime.inline`, synchronous callers.
"""
