-- Tasks whose alarm has come, earliest first.
--
-- $1 bigint  now
-- $2 bigint  only those beyond this alarm
-- $3 uuid    and this id
-- $4 bigint  the most to return
--
-- Leases and other alarms have an index each, which are merged.
SELECT {columns}
FROM (
    (
        SELECT * FROM {schema}.task
        WHERE state = 2 AND alarm <= $1::bigint AND (alarm, id) > ($2::bigint, $3::uuid)
        ORDER BY alarm, id
        LIMIT $4::bigint
    )
    UNION ALL
    (
        SELECT * FROM {schema}.task
        WHERE state <> 2 AND alarm IS NOT NULL AND alarm <= $1::bigint AND (alarm, id) > ($2::bigint, $3::uuid)
        ORDER BY alarm, id
        LIMIT $4::bigint
    )
) AS t
ORDER BY t.alarm, t.id
LIMIT $4::bigint
