-- When the next starts are due of some queues and what is in them.
--
-- $1 text[]   queues
-- $2 bytea[]  names
--
-- Returns queue, name and moment.
SELECT d.queue, d.name, d.due FROM {schema}.due AS d WHERE d.queue = ANY ($1::text[]) AND d.name = ANY ($2::bytea[])
