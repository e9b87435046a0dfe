-- Put values into the feed. The row of feed_end is locked until the commit, and an update that had to wait for it sees
-- it as it then is: no position is ever readable before a lower one.
--
-- $1 bigint   now
-- $2 bytea[]  values, at least one
--
-- Returns how many were ever published.
WITH moved AS (
    INSERT INTO {schema}.feed_end AS e (one, position, published)
    VALUES (true, $1::bigint + cardinality($2::bytea[]) - 1, cardinality($2::bytea[]))
    ON CONFLICT (one) DO UPDATE SET
        position = greatest(e.position + 1, $1::bigint) + cardinality($2::bytea[]) - 1,
        published = e.published + cardinality($2::bytea[])
    RETURNING position, published
),
put AS (
    INSERT INTO {schema}.feed (position, value)
    SELECT m.position - cardinality($2::bytea[]) + v.place, v.value
    FROM moved AS m, unnest($2::bytea[]) WITH ORDINALITY AS v (value, place)
)
SELECT published FROM moved
