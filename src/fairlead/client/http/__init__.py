"""Connections to a server, awaited and blocking."""
