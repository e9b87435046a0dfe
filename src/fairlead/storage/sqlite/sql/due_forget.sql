-- Forget what is past: it is as if there had been no start. Parameters: now.
DELETE FROM due WHERE due <= ?
