-- The last position given, and how many values were ever published.
SELECT position, published FROM feed_end WHERE one = 1
