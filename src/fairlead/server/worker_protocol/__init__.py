"""The worker protocol: workers in any language register, poll, renew and report over HTTP."""
