"""Queues: what can be said of one, its limits and the order of service."""
