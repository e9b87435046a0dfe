"""Commands on tasks: submitted, shown, explained, changed, one or many."""
