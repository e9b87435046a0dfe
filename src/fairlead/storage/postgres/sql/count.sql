-- How many ready tasks are in stretches of their lanes, from one place on and before another.
--
-- $1 text[]      queues           $2 text[]  types
-- $3 text[]      capability sets, each with commas between its members
-- $4 smallint[]  priorities
-- $5 bigint[]    ready_at         $6 uuid[]  ids of the starts
-- $7 bigint[]    ready_at         $8 uuid[]  ids of the ends
--
-- Returns a number for each stretch, in their order.
SELECT
    (
        SELECT count(*)
        FROM {schema}.task AS t
        WHERE t.route = r.id AND t.priority = s.priority AND t.state = 1
            AND (t.ready_at, t.id) >= (s.from_ready_at, s.from_id) AND (t.ready_at, t.id) < (s.to_ready_at, s.to_id)
    )
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::uuid[], $7::bigint[], $8::uuid[]
) WITH ORDINALITY AS s (queue, type, requires, priority, from_ready_at, from_id, to_ready_at, to_id, place)
LEFT JOIN {schema}.route AS r
    ON r.queue = s.queue AND r.type = s.type AND r.requires = string_to_array(s.requires, ',')
ORDER BY s.place
