-- Whether any task waits for another.
SELECT EXISTS (SELECT 1 FROM dependent)
