"""The HTTP service: REST, the worker protocol and events over one engine."""
