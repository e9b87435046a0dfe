"""The handlers, by what they are about, and the groups of endpoints that they answer."""
