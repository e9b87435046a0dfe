"""Who may do what: API keys, sessions, roles, origins and rate limits."""
