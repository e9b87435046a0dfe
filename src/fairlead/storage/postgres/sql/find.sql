-- One page of a listing, by id.
--
-- {branches} is one or more of branch.sql, each with its own index; {order} is ASC or DESC.
--
-- $1 bigint  the most to return
SELECT {columns}
FROM ({branches}) AS t
ORDER BY t.id {order}
LIMIT $1::bigint
