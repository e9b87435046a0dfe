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
