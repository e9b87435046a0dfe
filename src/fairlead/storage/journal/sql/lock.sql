-- Keep those who put tasks back into the hot store and those who change a task that is not there apart, until commit.
--
-- $1 text  the schema
-- {kind} is empty for the one who changes, `_shared` for those who put back.
SELECT pg_advisory_xact_lock{kind}(hashtext('fairlead journal'), hashtext($1::text))
