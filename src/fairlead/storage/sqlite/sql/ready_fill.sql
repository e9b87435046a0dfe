-- Put tasks into their lanes. Parameters: the number that theirs are above.
INSERT INTO ready (lane, ready_at, id, number)
SELECT lane, ready_at, id, number FROM task WHERE number > ? AND ready_at IS NOT NULL
