"""Submitting tasks from Python, and how a program is configured."""
