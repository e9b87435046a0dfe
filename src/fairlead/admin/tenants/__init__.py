"""Tenants: who shares the queues that are shared by fair keys, and with how much."""
