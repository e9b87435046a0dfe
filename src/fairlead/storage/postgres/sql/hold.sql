-- Lock tasks and those who wait for them, all in order of id, so that concurrent calls cannot deadlock. Who waits can
-- then be read by the next statement, and no one more can come to wait for these tasks meanwhile.
--
-- $1 uuid[]  ids
--
-- Returns nothing of use.
SELECT count(*)
FROM (
    SELECT t.id
    FROM {schema}.task AS t
    WHERE t.id IN (
        SELECT unnest($1::uuid[]) UNION SELECT d.id FROM {schema}.dependent AS d WHERE d.parent = ANY ($1::uuid[])
    )
    ORDER BY t.id
    FOR UPDATE
) AS held
