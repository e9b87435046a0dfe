"""Circuits: task types that stop being claimed while they keep failing."""
