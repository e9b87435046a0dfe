-- Forget what a task is. Parameters: number.
DELETE FROM task WHERE number = ?
