"""Schedules: when they recur, and what becomes of fire times that were missed."""
