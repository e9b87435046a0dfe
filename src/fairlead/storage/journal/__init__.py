"""The journal: Redis for the hot path, PostgreSQL as the source of truth.

`store.JournalStore` is a store that wraps a hot one; nothing else in the system knows. What is written where, and what
a crash at each point leaves behind, is told in docs/adr/0040.
"""
