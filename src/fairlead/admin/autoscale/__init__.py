"""How many workers a queue wants."""
