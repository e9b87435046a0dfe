"""Connections to PostgreSQL: pools, credentials, poolers and notifications."""
