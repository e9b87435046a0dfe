"""What can be said of why a task waits, or ran when it ran."""
