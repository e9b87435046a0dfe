-- name: incarnation.mark
-- The mark of the current hot store, whether it is whole, and the slots that bear it.
SELECT name, number, whole, (SELECT coalesce(array_agg(slot), '{}') FROM {schema}.marked) FROM {schema}.mark

-- name: incarnation.move_mark
-- Make another hot store the current one, unless someone else just has.
--
-- $1 bigint   the number that the mark has
-- $2 boolean  whether the store has all that the journal has
-- $3 text     the name of the store
--
-- Returns the number that it has now; no row when it had another one.
WITH moved AS (
    UPDATE {schema}.mark SET name = $3::text, number = number + 1, whole = $2::boolean WHERE number = $1::bigint
    RETURNING number
), cleared AS (
    DELETE FROM {schema}.marked WHERE EXISTS (SELECT FROM moved)
)
SELECT number FROM moved

-- name: incarnation.list_marked
-- List slots that bear the mark.
--
-- $1 bigint  the number of the mark   $2 integer[]  the slots
INSERT INTO {schema}.marked (slot)
SELECT unnest($2::integer[]) WHERE EXISTS (SELECT FROM {schema}.mark WHERE number = $1::bigint)
ON CONFLICT DO NOTHING

-- name: incarnation.make_whole
-- Say that the hot store has all that the journal has.
--
-- $1 bigint  the number of its mark
UPDATE {schema}.mark SET whole = true WHERE number = $1::bigint
