"""Schedules: tasks submitted at set times."""
