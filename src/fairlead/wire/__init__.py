"""The JSON shapes of the API: what goes over HTTP, and what the command line writes with --json."""
