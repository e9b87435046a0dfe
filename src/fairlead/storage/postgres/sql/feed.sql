-- name: feed.publish
-- Put values into the feed. The row of feed_end is locked until the commit, and an update that had to wait for it sees
-- it as it then is: no position is ever readable before a lower one.
--
-- $1 bigint   now
-- $2 bytea[]  values, at least one
--
-- Returns how many were ever published.
WITH moved AS (
    INSERT INTO {schema}.feed_end AS e (one, position, published)
    VALUES (true, $1::bigint + cardinality($2::bytea[]) - 1, cardinality($2::bytea[]))
    ON CONFLICT (one) DO UPDATE SET
        position = greatest(e.position + 1, $1::bigint) + cardinality($2::bytea[]) - 1,
        published = e.published + cardinality($2::bytea[])
    RETURNING position, published
),
put AS (
    INSERT INTO {schema}.feed (position, value)
    SELECT m.position - cardinality($2::bytea[]) + v.place, v.value
    FROM moved AS m, unnest($2::bytea[]) WITH ORDINALITY AS v (value, place)
)
SELECT published FROM moved

-- name: feed.trim
-- Remove all but the last entries of the feed.
--
-- $1 bigint  how many stay
--
-- Returns nothing.
DELETE FROM {schema}.feed
WHERE position <= (SELECT f.position FROM {schema}.feed AS f ORDER BY f.position DESC LIMIT 1 OFFSET $1::bigint)

-- name: feed.read
-- Entries of the feed, oldest first.
--
-- $1 bigint  the position that they are beyond; one beyond the end is of a feed that was lost, and before all of this
-- $2 bigint  how many at most
--
-- Returns position, value.
SELECT f.position, f.value
FROM {schema}.feed AS f
WHERE f.position > CASE
    WHEN $1::bigint > coalesce((SELECT e.position FROM {schema}.feed_end AS e WHERE e.one), 0) THEN -1
    ELSE $1::bigint
END
ORDER BY f.position
LIMIT $2::bigint

-- name: feed.end
-- The last position given.
--
-- Returns position; nothing if there was none yet.
SELECT position FROM {schema}.feed_end WHERE one
