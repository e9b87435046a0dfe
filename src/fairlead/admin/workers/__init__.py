"""Workers as people see them: listed, shown, paused and drained."""
