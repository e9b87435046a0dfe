-- Put a value into the feed. Parameters: position, value.
INSERT INTO feed (position, value) VALUES (?, ?)
