-- The highest task number in use.
SELECT max(number) FROM task
