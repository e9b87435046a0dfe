"""The keeper: the process that renews the leases of a worker, whatever its handlers do."""
