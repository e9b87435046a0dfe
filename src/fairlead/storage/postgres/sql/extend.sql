-- Renew leases and store progress; of no task twice.
--
-- $1 bigint   until when, at most
-- $2 bigint   how long past its timeout an attempt may hold its lease
-- $3 uuid[]   ids, ascending
-- $4 text[]   lease tokens
-- $5 bytea[]  progress reports, null for none
--
-- Returns id and whether cancel was asked, for each lease that is held.
UPDATE {schema}.task AS t
SET beats = t.beats + 1,
    until = greatest(t.until, least($1::bigint, t.started_at + t.timeout + $2::bigint)),
    alarm = greatest(t.until, least($1::bigint, t.started_at + t.timeout + $2::bigint)),
    progress = coalesce(b.progress, t.progress)
FROM unnest($3::uuid[], $4::text[], $5::bytea[]) AS b (id, token, progress)
WHERE t.id = b.id AND t.token = b.token
RETURNING t.id::text, t.cancel_asked
