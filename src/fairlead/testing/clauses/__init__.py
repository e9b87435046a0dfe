"""The clauses of the storage contract, one file per group of operations."""
