-- How many tasks are to be in the hot store.
SELECT (SELECT count(*) FROM {schema}.status WHERE state = 0)
    + (SELECT count(*) FROM {schema}.status WHERE state = 1)
    + (SELECT count(*) FROM {schema}.status WHERE state = 2)
    + (SELECT count(*) FROM {schema}.status WHERE leaves_at > {schema}.now())
