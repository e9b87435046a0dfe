-- Take note of who waits for whom. Rows: the task that is waited for, the task that waits.
INSERT INTO dependent (parent, id) VALUES {rows}
