-- The highest task number in use, and the highest id.
SELECT (SELECT max(number) FROM task), (SELECT max(id) FROM task)
