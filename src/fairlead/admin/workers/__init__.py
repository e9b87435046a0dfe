"""Workers as people see them: listed, shown and drained."""
