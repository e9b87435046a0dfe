-- Turns, by which the fair keys of a line share it (see `fairlead.core.queues.fairness`), and what is to come beside them:
-- entries of tasks and terms to find tasks by.

-- What was found out about routes for a type set: two bits for each route from the first to the last, whether it is known
-- and whether its tasks may be taken.
ALTER TABLE {schema}.type_set ADD COLUMN first_route int, ADD COLUMN last_route int, ADD COLUMN routes bytea;

-- The lanes of tasks that take turns are apart, and so are their groups.
ALTER TABLE {schema}.route ADD COLUMN fair boolean NOT NULL DEFAULT false;
ALTER TABLE {schema}.lane_group ADD COLUMN fair boolean NOT NULL DEFAULT false;
ALTER TABLE {schema}.lane_group DROP CONSTRAINT lane_group_queue_keyed_requires_key;
ALTER TABLE {schema}.lane_group ADD UNIQUE (queue, keyed, requires, fair);

-- Null in every task that takes no turns: that takes no space in the row.
--   fair_key   its queue, a byte of 0 and its fair key
--   fair_step  how far apart the turns of its key are
--   turn       as its status says: counted from when its line had no fair tasks last
--   place      the same counted from the first task ever of its line, so that what is committed late, by who knows nothing
--              of a line that was empty meanwhile, still has its place among the others
ALTER TABLE {schema}.task
    ADD COLUMN turn bigint, ADD COLUMN place bigint, ADD COLUMN fair_step int, ADD COLUMN fair_key bytea;

CREATE INDEX task_turn ON {schema}.task (lane_group, priority, place, id) WHERE state = 1 AND place IS NOT NULL;
CREATE INDEX task_fair_key ON {schema}.task (priority, fair_key, place) WHERE state = 1 AND place IS NOT NULL;

-- How far the turns of a line have come. Every claim that serves by turn adds a row, so none waits for another; the
-- greatest of the latest rows counts. `base` is where the line was when it had no fair tasks last; `others` counts only if
-- it is of the same base.
CREATE TABLE {schema}.line_turn (
    id bigint GENERATED ALWAYS AS IDENTITY,
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    reached bigint NOT NULL,
    others bigint NOT NULL,
    base bigint NOT NULL,
    PRIMARY KEY (queue, priority, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- How far a line has come, for a task that comes to be queued in it: what was reached, and where it began. Without fair
-- tasks that wait, but for this one, it begins anew. The line is that of a queue, as in the fair keys of its tasks.
CREATE FUNCTION {schema}.line_entered(of_line bytea, of_priority smallint, of_id uuid) RETURNS bigint[]
LANGUAGE plpgsql AS $body$
DECLARE
    of_queue text := convert_from(of_line, 'UTF8');
    reached bigint;
    base bigint;
BEGIN
    SELECT coalesce(max(n.reached), 0), coalesce(max(n.base), 0) INTO reached, base
    FROM (
        SELECT l.reached, l.base FROM {schema}.line_turn AS l WHERE l.queue = of_queue AND l.priority = of_priority
        ORDER BY l.id DESC LIMIT 16
    ) AS n;
    IF reached > base AND NOT EXISTS (
        SELECT FROM {schema}.task AS t
        WHERE t.priority = of_priority AND t.fair_key >= of_line || '\x00'::bytea
            AND t.fair_key < of_line || '\x01'::bytea AND t.state = 1 AND t.place IS NOT NULL
            AND t.id IS DISTINCT FROM of_id
    ) THEN
        INSERT INTO {schema}.line_turn (queue, priority, reached, others, base)
        VALUES (of_queue, of_priority, reached, 0, reached);
        base := reached;
    END IF;
    RETURN ARRAY[reached, base];
END
$body$;

CREATE FUNCTION {schema}.line_of(of_key bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $body$
    SELECT substring(of_key FROM 1 FOR position('\x00'::bytea IN of_key) - 1)
$body$;

-- The turn of a task that comes to be queued: `own` is what it had if it keeps that, else 0.
CREATE FUNCTION {schema}.turn_of(
    of_id uuid, of_key bytea, of_priority smallint, of_step int, own bigint, OUT turn bigint, OUT place bigint
) LANGUAGE plpgsql AS $body$
DECLARE
    line bigint[] := {schema}.line_entered({schema}.line_of(of_key), of_priority, of_id);
    last bigint;
BEGIN
    IF own > 0 THEN
        place := least(own + line[2], line[1] + of_step);
    ELSE
        SELECT t.place INTO last FROM {schema}.task AS t
        WHERE t.priority = of_priority AND t.fair_key = of_key AND t.state = 1 AND t.place IS NOT NULL AND t.id <> of_id
        ORDER BY t.place DESC LIMIT 1;
        place := greatest(line[1], coalesce(last, 0)) + of_step;
    END IF;
    turn := place - line[2];
END
$body$;

CREATE FUNCTION {schema}.turn_added() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    SELECT o.turn, o.place INTO NEW.turn, NEW.place
    FROM {schema}.turn_of(NEW.id, NEW.fair_key, NEW.priority, NEW.fair_step, coalesce(NEW.turn, 0)) AS o;
    RETURN NEW;
END
$body$;

-- But where the statement has given one to all tasks of a call.
CREATE TRIGGER task_turned BEFORE INSERT ON {schema}.task FOR EACH ROW
    WHEN (NEW.fair_key IS NOT NULL AND NEW.state = 1 AND NEW.place IS NULL)
    EXECUTE FUNCTION {schema}.turn_added();

-- A row that comes to be queued by a change is written again: before a change, a trigger would have every row of every
-- claim and settle locked twice.
CREATE FUNCTION {schema}.turn_changed() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE {schema}.task AS t SET turn = o.turn, place = o.place
    FROM {schema}.turn_of(NEW.id, NEW.fair_key, NEW.priority, NEW.fair_step, coalesce(NEW.turn, 0)) AS o
    WHERE t.id = NEW.id;
    RETURN NULL;
END
$body$;

CREATE TRIGGER task_returned AFTER UPDATE ON {schema}.task FOR EACH ROW
    WHEN (NEW.fair_key IS NOT NULL AND NEW.state = 1 AND (OLD.state <> 1 OR NEW.priority <> OLD.priority))
    EXECUTE FUNCTION {schema}.turn_changed();

CREATE FUNCTION {schema}.group_of(of_queue text, of_requires text[], of_keyed boolean, of_fair boolean) RETURNS int
LANGUAGE plpgsql AS $body$
DECLARE found_id int;
BEGIN
    LOOP
        SELECT g.id INTO found_id FROM {schema}.lane_group AS g
        WHERE g.queue = of_queue AND g.keyed = of_keyed AND g.fair = of_fair AND g.requires = of_requires;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.lane_group (queue, keyed, requires, fair)
        VALUES (of_queue, of_keyed, of_requires, of_fair) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN found_id;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.group_route() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    NEW.lane_group := {schema}.group_of(NEW.queue, NEW.requires, NEW.keyed, NEW.fair);
    RETURN NEW;
END
$body$;

DROP FUNCTION {schema}.group_of(text, text[], boolean);

-- Entries that attempts leave with a task: results of steps, what it emits, lines of its log.
CREATE TABLE {schema}.entry (
    task uuid NOT NULL,
    position int NOT NULL,
    kind smallint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (task, position)
);

-- The terms that a task is found by: digests of a field and its value.
ALTER TABLE {schema}.task ADD COLUMN terms bigint[];
CREATE INDEX task_terms ON {schema}.task USING gin (terms) WHERE terms IS NOT NULL;
