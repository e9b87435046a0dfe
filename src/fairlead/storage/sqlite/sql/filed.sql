-- The number up to which tasks are filed, and the highest one in use.
SELECT (SELECT number FROM filed), (SELECT max(number) FROM task)
