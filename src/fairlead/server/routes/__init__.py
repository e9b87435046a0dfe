"""The handlers: one module for each group of endpoints."""
