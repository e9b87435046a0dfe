"""fairlead: a priority task queue that never starves a task, never loses one, and can say why each one waits."""
