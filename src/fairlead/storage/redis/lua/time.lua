-- The server's clock, in microseconds.
--
-- KEYS[1]  any key
--
-- Returns it.

return string.format('%.0f', clock())
