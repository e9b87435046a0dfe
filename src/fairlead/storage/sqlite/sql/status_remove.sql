-- Forget how a task stands. Parameters: number.
DELETE FROM status WHERE number = ?
