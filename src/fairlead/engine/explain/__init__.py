"""Explaining why a task waits, and when it will start."""
