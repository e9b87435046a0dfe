-- The first schema. {schema} is the quoted name of the schema; every name is qualified, so nothing depends on the
-- search path.
--
-- A task is one row. Splitting a narrow status from the body would save rewriting the body, but costs a second row and
-- a second index entry per submit: measured in docs/adr/0030. What a statement compares or changes by itself is a
-- column; the rest is packed (MessagePack) in `spec`, written once, and `rest`.
--
-- state: 0 scheduled, 1 queued, 2 executing, 3 completed, 4 failed, 5 dead_letter, 6 cancelled
-- priority: 0 critical, 1 high, 2 medium, 3 low
-- Instants and spans are microseconds.

-- A queue, type and capability set, under the name by which a submit finds it.
CREATE TABLE {schema}.route (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    requires text[] NOT NULL
);

CREATE INDEX route_queue ON {schema}.route (queue);

CREATE TABLE {schema}.task (
    id uuid PRIMARY KEY,
    ready_at bigint NOT NULL,
    timeout bigint NOT NULL,
    alarm bigint,
    started_at bigint,
    until bigint,
    created_at bigint NOT NULL,
    version bigint NOT NULL,
    beats bigint NOT NULL,
    attempts bigint NOT NULL,
    route int NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    cancel_asked boolean NOT NULL,
    token text COLLATE "C",
    worker text COLLATE "C",
    settled text COLLATE "C",
    key bytea,
    tags jsonb,
    progress bytea,
    rest bytea NOT NULL,
    spec bytea NOT NULL
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Parameters and results are often compressed or random already; compressing them in the row's update is wasted work.
ALTER TABLE {schema}.task ALTER COLUMN spec SET STORAGE EXTERNAL;
ALTER TABLE {schema}.task ALTER COLUMN rest SET STORAGE EXTENDED;

-- The lanes: what a claim reads.
CREATE INDEX task_ready ON {schema}.task (route, priority, ready_at, id) WHERE state = 1;

-- The alarms, in two parts of which a row is in one: leases, so that the executing tasks can be listed, and the others.
CREATE INDEX task_lease ON {schema}.task (alarm, id) WHERE state = 2;
CREATE INDEX task_alarm ON {schema}.task (alarm, id) WHERE state <> 2 AND alarm IS NOT NULL;

-- The states that a task on the good path never enters: listing them costs nothing there.
CREATE INDEX task_aside ON {schema}.task (state, id) WHERE state IN (0, 4, 5, 6);

CREATE INDEX task_tags ON {schema}.task USING gin (tags) WHERE tags IS NOT NULL;

-- How many tasks a lane has in a state is the sum of its rows here. Writers only insert, so none waits for another;
-- now and then many rows are folded into their sums.
CREATE TABLE {schema}.tally (
    route int NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    tasks bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- Idempotency keys, as bytes because text cannot hold every character.
CREATE TABLE {schema}.key (
    queue text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    holder uuid NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

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
