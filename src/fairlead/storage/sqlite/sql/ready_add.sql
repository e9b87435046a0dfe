-- Put tasks into their lanes. Rows: lane, ready_at, id, number.
INSERT INTO ready (lane, ready_at, id, number) VALUES {rows}
