-- Records that must outlive the hot store, as a PostgreSQL store keeps them; and what searches need to be quick for any
-- value.

CREATE TABLE {schema}.record (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX status_priority ON {schema}.status (priority, id);
CREATE INDEX status_ended ON {schema}.status (ended_at, id) WHERE ended_at IS NOT NULL;

-- The words of an error are a column, not an expression: of a column the planner knows which words are common, and then
-- walks from the newest task instead of fetching every error there is.
DROP INDEX {schema}.status_error;
ALTER TABLE {schema}.status ADD COLUMN words tsvector GENERATED ALWAYS AS (to_tsvector('simple', error)) STORED;
CREATE INDEX status_words ON {schema}.status USING gin (words) WHERE words IS NOT NULL;
