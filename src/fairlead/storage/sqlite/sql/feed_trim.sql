-- Remove all but the last entries of the feed. Parameters: how many stay.
DELETE FROM feed WHERE position <= (SELECT position FROM feed ORDER BY position DESC LIMIT 1 OFFSET ?)
