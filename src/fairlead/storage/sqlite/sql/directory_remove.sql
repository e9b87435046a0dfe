-- Forget the number of a task. Parameters: id.
DELETE FROM directory WHERE id = ?
