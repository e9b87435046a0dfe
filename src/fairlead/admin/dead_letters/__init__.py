"""Dead letters, grouped by their errors."""
