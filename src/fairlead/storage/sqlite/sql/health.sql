-- name: health.orphans
-- How many entries of the directory, of the lanes, and of those tasks that have been touched, name a task that is not
-- there.
-- Parameters: how many entries of each to look at.
SELECT
    (
        SELECT count(*) FROM (SELECT number FROM directory LIMIT ?1) AS entered
        WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.number = entered.number)
    ) + (
        SELECT count(*) FROM (SELECT number FROM ready LIMIT ?1) AS waiting
        WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.number = waiting.number)
    ) + (
        SELECT count(*) FROM (SELECT number FROM status LIMIT ?1) AS touched
        WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.number = touched.number)
    )
