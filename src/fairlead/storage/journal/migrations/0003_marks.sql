-- Which hot store is the current one: the one that bears the mark `name:number`. Every slot of it that was ever used
-- bears the mark too, and is listed. Whoever rebuilds a store that was lost moves the number first, so that of many who would
-- one does, and so that a store which still bears an older mark is known for one that was replaced.

CREATE TABLE {schema}.mark (
    -- There is one.
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    name text COLLATE "C" NOT NULL,
    -- 0 while no hot store was ever marked.
    number bigint NOT NULL DEFAULT 0,
    -- Whether all that the journal has is in the hot store; not while it is rebuilt.
    whole boolean NOT NULL DEFAULT true
);

INSERT INTO {schema}.mark (name) VALUES (md5(random()::text || clock_timestamp()::text));

CREATE TABLE {schema}.marked (
    slot integer PRIMARY KEY
);

INSERT INTO {schema}.duty (name) VALUES ('rebuild');
