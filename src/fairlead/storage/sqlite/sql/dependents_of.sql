-- Who waits for a task. Parameters: its id.
SELECT id FROM dependent WHERE parent = ? ORDER BY id
