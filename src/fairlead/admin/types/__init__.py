"""Task types as workers publish them: the options of their declarations, and what parameters they take."""
