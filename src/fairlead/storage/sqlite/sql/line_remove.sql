-- A task of a key is no longer queued. Parameters: lane, key, ready_at, id.
DELETE FROM line WHERE lane = ? AND key = ? AND ready_at = ? AND id = ?
