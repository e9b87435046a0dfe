-- Enter tasks in the directory. Parameters: the number that theirs are above.
INSERT INTO directory (id, number) SELECT id, number FROM task WHERE number > ?
