-- name: health.examine
-- What the server and the tables of the schema say of themselves.
--
-- $1  the schema
--
-- Returns one row: a JSON object. Activity of other users that ours may not see counts as none.
SELECT json_build_object(
    'server', current_setting('server_version'),
    'synchronous_commit', current_setting('synchronous_commit'),
    'fsync', current_setting('fsync'),
    'full_page_writes', current_setting('full_page_writes'),
    'autovacuum', current_setting('autovacuum'),
    'max_connections', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
    'standby', pg_is_in_recovery(),
    'version', (SELECT max(version) FROM {schema}.migration),
    'connections', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    'oldest_snapshot_seconds', (
        SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0)::bigint
        FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
    ),
    'live', (SELECT coalesce(sum(n_live_tup), 0) FROM pg_stat_user_tables WHERE schemaname = $1),
    'dead', (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = $1)
)::text

-- name: health.orphans
-- How many idempotency keys, of those looked at, are held by a task that is not there.
--
-- $1  how many keys to look at
--
-- Returns one row: the number.
SELECT count(*) FROM (SELECT holder FROM {schema}.key LIMIT $1) AS looked_at
WHERE NOT EXISTS (SELECT 1 FROM {schema}.task WHERE task.id = looked_at.holder)
