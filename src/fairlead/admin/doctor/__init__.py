"""The doctor: whether all is as it should be, and what to do if not."""
