-- Store what a task is. Parameters: number, packed spec.
INSERT INTO task (number, spec) VALUES (?, ?)
