-- When the next alarm rings.
SELECT min(alarm) FROM (
    SELECT min(alarm) AS alarm FROM status INDEXED BY status_lease WHERE state = 'executing'
    UNION ALL
    SELECT min(alarm) FROM status INDEXED BY status_alarm WHERE state NOT IN ('queued', 'executing')
)
