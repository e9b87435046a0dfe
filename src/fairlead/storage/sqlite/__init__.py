"""The SQLite store: one file, fully durable, safe for many processes on one host."""
