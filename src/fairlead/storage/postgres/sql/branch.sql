-- A part of a listing: {conditions} is what the filter asks for, with the state as a literal so that the planner can
-- prove which partial index serves it.
(SELECT * FROM {schema}.task AS t WHERE {conditions} ORDER BY t.id {order} LIMIT $1::bigint)
