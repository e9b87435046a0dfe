-- How many entries of the lanes name a task that is not there. Parameters: how many entries to look at.
SELECT count(*) FROM (SELECT number FROM ready LIMIT ?) AS looked_at
WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.number = looked_at.number)
