-- Let each statement of a transaction see what was committed before it, whatever the database's default is: what is
-- counted under a lock must be counted after it was got.
--
-- Returns nothing.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
