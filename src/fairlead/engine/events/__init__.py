"""Events: told to observers in this process, and to all processes by the feed."""
