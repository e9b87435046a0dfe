-- The first schema of the journal. {schema} is the quoted name of the schema; every name is qualified.
--
-- A task is two rows: what was asked for, written once, and how it stands, replaced with every version. All indexes over
-- what was asked for are paid once per task and not again when it ends.
--
-- state: 0 scheduled, 1 queued, 2 executing, 3 completed, 4 failed, 5 dead_letter, 6 cancelled
-- priority: 0 critical, 1 high, 2 medium, 3 low
-- Instants and spans are microseconds.

CREATE TABLE {schema}.task (
    id uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    tags jsonb,
    parameters jsonb,
    spec bytea NOT NULL
) WITH (
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX task_queue ON {schema}.task (queue, id);
CREATE INDEX task_type ON {schema}.task (type, id);
CREATE INDEX task_created ON {schema}.task (created_at, id);
CREATE INDEX task_tags ON {schema}.task USING gin (tags jsonb_path_ops) WHERE tags IS NOT NULL;
CREATE INDEX task_parameters ON {schema}.task USING gin (parameters jsonb_path_ops);

CREATE TABLE {schema}.status (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    beats bigint NOT NULL,
    ended_at bigint,
    alarm bigint,
    -- When it was accepted, until the hot store has told of it: what was accepted and is not there was cut off between.
    accepted_at bigint,
    -- When an ended task may leave the hot store.
    leaves_at bigint,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    -- Who runs it, or ran it last.
    worker text COLLATE "C",
    -- What went wrong last.
    error text,
    status bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX status_state ON {schema}.status (state, id);
CREATE INDEX status_worker ON {schema}.status (worker, id) WHERE worker IS NOT NULL;
CREATE INDEX status_alarm ON {schema}.status (alarm) WHERE state >= 3;
CREATE INDEX status_accepted ON {schema}.status (accepted_at, id) WHERE accepted_at IS NOT NULL;
CREATE INDEX status_leaves ON {schema}.status (leaves_at, id) WHERE leaves_at IS NOT NULL;
CREATE INDEX status_error ON {schema}.status USING gin (to_tsvector('simple', error)) WHERE error IS NOT NULL;

-- Duties that one process at a time does, so that they are not done many times over: who does one has it until a
-- moment, and leaves behind how far it came.
CREATE TABLE {schema}.duty (
    name text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL DEFAULT 0,
    at bigint NOT NULL DEFAULT 0,
    id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

INSERT INTO {schema}.duty (name) VALUES ('reconcile'), ('leave'), ('prune');

-- The server's clock in microseconds.
CREATE FUNCTION {schema}.now() RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- JSON that jsonb cannot hold (a zero character, a number beyond its range), or that is none, is kept, but not searched.
CREATE FUNCTION {schema}.searchable(given bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(given, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$;
