-- Store a record. Parameters: kind, name, value, version.
INSERT OR REPLACE INTO record (kind, name, value, version) VALUES (?, ?, ?, ?)
