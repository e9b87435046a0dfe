-- Forget who waits for a task. Parameters: its id.
DELETE FROM dependent WHERE parent = ?
