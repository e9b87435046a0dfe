-- What a task is. Parameters: number.
SELECT spec FROM task WHERE number = ?
