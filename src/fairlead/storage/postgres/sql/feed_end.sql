-- The last position given.
--
-- Returns position; nothing if there was none yet.
SELECT position FROM {schema}.feed_end WHERE one
