"""Queues: paused, changed and purged."""
