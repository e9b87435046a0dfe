-- What was found out about routes for a type set: two bits for each route from the first to the last, whether it is known
-- and whether its tasks may be taken.
ALTER TABLE {schema}.type_set ADD COLUMN first_route int, ADD COLUMN last_route int, ADD COLUMN routes bytea;
