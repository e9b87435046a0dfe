"""Health: diagnoses, clocks that step, the quarantine, and how many workers are wanted."""
