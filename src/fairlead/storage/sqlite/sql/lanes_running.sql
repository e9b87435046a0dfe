-- How many tasks of each type are executing in some queues. Parameters: queues as a JSON array.
SELECT queue, type, sum(executing) FROM lane
WHERE queue IN (SELECT value FROM json_each(?)) AND executing > 0
GROUP BY queue, type
