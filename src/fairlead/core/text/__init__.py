"""Texts: hosts, traces, patterns, fingerprints of errors, and secrets that are masked."""
