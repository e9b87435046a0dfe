"""The PostgreSQL store.

`store` is the store; the SQL it runs is in `sql/`, one file per operation, and its schema in `migrations/`. Nothing
here decides what becomes of a task: the statements compare, set and merge by the tables they are given.
"""
