"""A Redis client of our own: replies, connections, Sentinel and Cluster, blocking and awaited."""
