-- Who waits for whom: one row for each task that has not ended and each task that waits for it. The end of the first
-- takes its rows away.

CREATE TABLE dependent (
    parent TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (parent, id)
) WITHOUT ROWID;
