"""Metrics: counted in each process, and shown as Prometheus reads them."""
