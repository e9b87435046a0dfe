-- Store tasks as they are when they are added. Rows: number, id, lane, ready_at if queued, concurrency key, packed spec, packed status.
INSERT INTO task (number, id, lane, ready_at, concurrency_key, spec, added) VALUES {rows}
