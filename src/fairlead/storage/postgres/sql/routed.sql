-- The routes of a queue or of a type; {field} is which, ? its name.
SELECT r.id FROM {schema}.route AS r WHERE r.{field} = ?::text
