-- Store how tasks stand that no longer stand as they were added. Rows: number, id, lane, state, alarm, packed status.
-- In this form one statement takes many rows and goes straight to each; UPDATE ... FROM would first collect them.
INSERT INTO status (number, id, lane, state, alarm, status) VALUES {rows}
ON CONFLICT (number) DO UPDATE
SET lane = excluded.lane,
    state = excluded.state,
    alarm = excluded.alarm,
    status = excluded.status
