"""Counts: how the queues and the workers stand."""
