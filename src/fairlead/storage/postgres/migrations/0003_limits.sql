-- Concurrency keys and limits.
--
-- Tasks that have a key take routes of their own, so that the claims of others need not look for one. Of such a lane a
-- claim reads `front`, the first task of each key; behind it is task_line. Claims of one queue that has limits or keys
-- take turns, and only they write `front`, `look` and `due`. All others only say, in `nudge`, that there may be another
-- first task of a key by now, or a free place: a row there is committed with what it tells of, so no claim misses it.

ALTER TABLE {schema}.route ADD COLUMN keyed boolean NOT NULL DEFAULT false;
CREATE INDEX route_keyed ON {schema}.route (queue) WHERE keyed;

ALTER TABLE {schema}.task ADD COLUMN concurrency_key bytea;

CREATE INDEX task_line ON {schema}.task (route, concurrency_key, priority, ready_at, id)
    WHERE state = 1 AND concurrency_key IS NOT NULL;

CREATE INDEX task_running ON {schema}.task (concurrency_key, route) WHERE state = 2 AND concurrency_key IS NOT NULL;

CREATE TABLE {schema}.front (
    route int NOT NULL,
    priority smallint NOT NULL,
    ready_at bigint NOT NULL,
    id uuid NOT NULL,
    key bytea NOT NULL,
    PRIMARY KEY (route, priority, ready_at, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX front_key ON {schema}.front (route, priority, key);

CREATE TABLE {schema}.nudge (
    queue text COLLATE "C" NOT NULL,
    key bytea NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX nudge_key ON {schema}.nudge (queue, key);

-- The keys that are full, from when on they may go on, and the limit by which.
CREATE TABLE {schema}.look (
    queue text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    at bigint NOT NULL,
    under text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, key)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX look_at ON {schema}.look (queue, at);
CREATE INDEX look_under ON {schema}.look (queue, under);

-- When the next start is due of what has a rate: a queue, a type or a key in it.
CREATE TABLE {schema}.due (
    queue text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    due bigint NOT NULL,
    PRIMARY KEY (queue, name)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX due_due ON {schema}.due (due);

-- Triggers with conditions cost the tasks without a key next to nothing, and no writer can forget them. A transaction
-- says the same only once; what another one has said does not count, because a claim may be reading it already.
CREATE FUNCTION {schema}.nudge_key(route_id int, of_key bytea) RETURNS void LANGUAGE sql AS $body$
    INSERT INTO {schema}.nudge (queue, key)
    SELECT r.queue, of_key FROM {schema}.route AS r
    WHERE r.id = route_id AND NOT EXISTS (
        SELECT FROM {schema}.nudge AS n
        WHERE n.queue = r.queue AND n.key = of_key AND n.xmin = pg_current_xact_id()::xid
    )
$body$;

CREATE FUNCTION {schema}.nudge_after() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}.nudge_key(OLD.route, OLD.concurrency_key);
    ELSE
        PERFORM {schema}.nudge_key(NEW.route, NEW.concurrency_key);
    END IF;
    RETURN NULL;
END
$body$;

CREATE TRIGGER nudge_added AFTER INSERT ON {schema}.task FOR EACH ROW
    WHEN (NEW.concurrency_key IS NOT NULL AND NEW.state = 1)
    EXECUTE FUNCTION {schema}.nudge_after();

CREATE TRIGGER nudge_changed AFTER UPDATE ON {schema}.task FOR EACH ROW
    WHEN (
        NEW.concurrency_key IS NOT NULL
        AND (OLD.state = 1 AND NEW.state <> 2 OR OLD.state = 2 AND NEW.state <> 2 OR NEW.state = 1)
    )
    EXECUTE FUNCTION {schema}.nudge_after();

CREATE TRIGGER nudge_removed AFTER DELETE ON {schema}.task FOR EACH ROW
    WHEN (OLD.concurrency_key IS NOT NULL AND OLD.state IN (1, 2))
    EXECUTE FUNCTION {schema}.nudge_after();
