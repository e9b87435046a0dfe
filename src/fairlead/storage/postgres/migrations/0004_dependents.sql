-- Who waits for whom: one row for each task that has not ended and each task that waits for it. The end of the first
-- takes its rows away.

CREATE TABLE {schema}.dependent (
    parent uuid NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (parent, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- Null in every task that has nothing to do with another: that takes no space in the row.
--   pending, unmet  how many of the tasks that it waits for have not ended, and ended other than completed
--   awaited         whether others wait for it: its end is to be counted for them, in the same transaction
ALTER TABLE {schema}.task ADD COLUMN pending bigint, ADD COLUMN unmet bigint, ADD COLUMN awaited boolean;
