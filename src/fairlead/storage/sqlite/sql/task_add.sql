-- Store tasks as they are when they are added. Rows: number, id, lane, packed spec, packed status.
INSERT INTO task (number, id, lane, spec, status) VALUES {rows}
