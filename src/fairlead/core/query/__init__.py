"""The query language: parsed, kept, and matched against tasks."""
