"""What people operate, over an engine: one folder for each thing, with its `service` and its `api`."""
