-- Store tasks that have a concurrency key. Rows: number, id, lane, packed spec, packed status, concurrency key.
INSERT INTO task (number, id, lane, spec, status, concurrency_key) VALUES {rows}
