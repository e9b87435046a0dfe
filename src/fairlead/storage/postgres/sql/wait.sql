-- name: wait.notify
-- Say something on a channel.
--
-- $1 text  channel
-- $2 text  what
--
-- Returns nothing of use.
SELECT pg_notify($1::text, $2::text)
