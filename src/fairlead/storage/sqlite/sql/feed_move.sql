-- Store where the feed ends. Parameters: last position, how many values were ever published.
INSERT OR REPLACE INTO feed_end (one, position, published) VALUES (1, ?, ?)
