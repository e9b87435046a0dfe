-- What a claim reads beyond a few lanes: the waiting tasks of a queue in the order of their wait, whatever their types.
--
-- A lane group is the lanes of one queue and capability set, with or without concurrency keys. Its ready tasks are in
-- one index, so a claim costs what it takes, however many types there are. task_ready, by route, is for those that ask
-- for a few types, and for counting.
--
-- A claim begins at a bound: no ready task that it may take is before it. So it passes over nothing that was claimed
-- before, vacuumed or not, and over nothing that is paused. Bounds are moved beside the claims, and no further than
-- `settled`. Whoever makes a task ready below `ceiling` says so in `lowered`, a row that is committed with the task; a
-- claim begins at the least of these. `settled` comes to `ceiling` once all have ended that may not have seen it.

CREATE TABLE {schema}.lane_group (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    keyed boolean NOT NULL,
    requires text[] NOT NULL,
    ceiling bigint NOT NULL DEFAULT -9223372036854775808,
    settled bigint NOT NULL DEFAULT -9223372036854775808,
    UNIQUE (queue, keyed, requires)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

INSERT INTO {schema}.lane_group (queue, keyed, requires) SELECT DISTINCT queue, keyed, requires FROM {schema}.route;

-- The task types that a worker may take, under the digest of them: those that are in it or, if `excluding`, all others.
CREATE TABLE {schema}.type_set (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text COLLATE "C" NOT NULL UNIQUE,
    excluding boolean NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE {schema}.type_set_member (
    type_set int NOT NULL,
    type text COLLATE "C" NOT NULL,
    PRIMARY KEY (type_set, type)
);

-- Where the claims of a type set begin, for each priority; type set 0 is all types.
CREATE TABLE {schema}.bound (
    lane_group int NOT NULL,
    type_set int NOT NULL,
    ready_at bigint[] NOT NULL,
    id uuid[] NOT NULL,
    PRIMARY KEY (lane_group, type_set)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE {schema}.lowered (
    lane_group int NOT NULL,
    ready_at bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX lowered_ready_at ON {schema}.lowered (lane_group, ready_at);

-- hidden_at: since when a route without tasks has no name that a submit finds; it is removed later.
ALTER TABLE {schema}.route ADD COLUMN lane_group int, ADD COLUMN hidden_at timestamptz;
UPDATE {schema}.route AS r SET lane_group = g.id
FROM {schema}.lane_group AS g WHERE g.queue = r.queue AND g.keyed = r.keyed AND g.requires = r.requires;
DROP INDEX {schema}.route_queue;
CREATE INDEX route_type ON {schema}.route (queue, type);
CREATE INDEX route_lane_group ON {schema}.route (lane_group, type);

-- A task that ended before this version has none, until it is made ready again.
ALTER TABLE {schema}.task ADD COLUMN lane_group int;
UPDATE {schema}.task AS t SET lane_group = r.lane_group
FROM {schema}.route AS r WHERE r.id = t.route AND t.state < 3;

CREATE INDEX task_group ON {schema}.task (lane_group, priority, ready_at, id) WHERE state = 1;

-- What runs in a queue is counted by its claims under limits, however many lanes wait.
CREATE INDEX tally_running ON {schema}.tally (route) INCLUDE (tasks) WHERE state = 2;

-- For processes of earlier versions, which know of no groups: what they add is put into its group, and below a ceiling
-- or not they say that it was lowered. The others take care of that in their own statements, and no trigger fires.
CREATE FUNCTION {schema}.group_of(of_queue text, of_requires text[], of_keyed boolean) RETURNS int
LANGUAGE plpgsql AS $body$
DECLARE found_id int;
BEGIN
    LOOP
        SELECT g.id INTO found_id FROM {schema}.lane_group AS g
        WHERE g.queue = of_queue AND g.keyed = of_keyed AND g.requires = of_requires;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.lane_group (queue, keyed, requires) VALUES (of_queue, of_keyed, of_requires)
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN found_id;
END
$body$;

CREATE FUNCTION {schema}.group_route() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.lane_group := {schema}.group_of(NEW.queue, NEW.requires, NEW.keyed);
    RETURN NEW;
END
$body$;

CREATE TRIGGER route_grouped BEFORE INSERT ON {schema}.route FOR EACH ROW
    WHEN (NEW.lane_group IS NULL) EXECUTE FUNCTION {schema}.group_route();

CREATE FUNCTION {schema}.group_added() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.lane_group := (SELECT r.lane_group FROM {schema}.route AS r WHERE r.id = NEW.route);
    IF NEW.state = 1 THEN
        INSERT INTO {schema}.lowered VALUES (NEW.lane_group, NEW.ready_at);
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER task_grouped BEFORE INSERT ON {schema}.task FOR EACH ROW
    WHEN (NEW.lane_group IS NULL) EXECUTE FUNCTION {schema}.group_added();

-- What makes a waiting, executing or ended task ready, of whichever version: it keeps its wait, so it may be below.
CREATE FUNCTION {schema}.group_changed() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE of_group int := NEW.lane_group;
BEGIN
    IF of_group IS NULL THEN
        of_group := (SELECT r.lane_group FROM {schema}.route AS r WHERE r.id = NEW.route);
        UPDATE {schema}.task SET lane_group = of_group WHERE id = NEW.id;
    END IF;
    INSERT INTO {schema}.lowered
    SELECT g.id, NEW.ready_at FROM {schema}.lane_group AS g WHERE g.id = of_group AND NEW.ready_at < g.ceiling;
    RETURN NULL;
END
$body$;

CREATE TRIGGER task_regrouped AFTER UPDATE ON {schema}.task FOR EACH ROW
    WHEN (
        NEW.state = 1
        AND (OLD.state <> 1 OR NEW.priority <> OLD.priority OR NEW.ready_at < OLD.ready_at OR NEW.lane_group IS NULL)
    )
    EXECUTE FUNCTION {schema}.group_changed();
