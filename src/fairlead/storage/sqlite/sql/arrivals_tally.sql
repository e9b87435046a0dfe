-- How many tasks of each lane are not filed, and when the wait of the first of them began.
SELECT lane, count(*), min(ready_at) FROM task WHERE number > (SELECT number FROM filed) GROUP BY lane
