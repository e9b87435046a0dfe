-- name: feed.add
-- Put a value into the feed. Parameters: position, value.
INSERT INTO feed (position, value) VALUES (?, ?)

-- name: feed.move
-- Store where the feed ends. Parameters: last position, how many values were ever published.
INSERT OR REPLACE INTO feed_end (one, position, published) VALUES (1, ?, ?)

-- name: feed.trim
-- Remove all but the last entries of the feed. Parameters: how many stay.
DELETE FROM feed WHERE position <= (SELECT position FROM feed ORDER BY position DESC LIMIT 1 OFFSET ?)

-- name: feed.read
-- Entries of the feed. Parameters: the position they are beyond, how many at most.
SELECT position, value FROM feed WHERE position > ? ORDER BY position LIMIT ?

-- name: feed.end
-- The last position given, and how many values were ever published.
SELECT position, published FROM feed_end WHERE one = 1
