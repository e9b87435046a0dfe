"""Operations: one action on all tasks that a query means."""
