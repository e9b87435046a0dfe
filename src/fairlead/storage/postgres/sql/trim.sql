-- Remove all but the last entries of the feed.
--
-- $1 bigint  how many stay
--
-- Returns nothing.
DELETE FROM {schema}.feed
WHERE position <= (SELECT f.position FROM {schema}.feed AS f ORDER BY f.position DESC LIMIT 1 OFFSET $1::bigint)
