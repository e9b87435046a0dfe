"""Handlers in processes of their own, which may crash or be killed."""
