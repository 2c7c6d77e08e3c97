-- One file of dead letters. The payload is the last column, so that a search by the others does not read it.

CREATE TABLE IF NOT EXISTS letters (
    id BLOB NOT NULL UNIQUE,
    stage TEXT NOT NULL,
    code TEXT NOT NULL,
    reason TEXT NOT NULL,
    failed_at INTEGER NOT NULL, -- microseconds since 1970
    attempts INTEGER NOT NULL,
    remote TEXT NOT NULL,
    key_id TEXT NOT NULL,
    producer TEXT NOT NULL,
    violations TEXT NOT NULL, -- JSON
    event_id BLOB NOT NULL,
    received_at INTEGER NOT NULL, -- microseconds since 1970
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    traceparent TEXT,
    size_bytes INTEGER NOT NULL,
    payload BLOB NOT NULL
);

CREATE INDEX IF NOT EXISTS letters_by_age ON letters (failed_at, id, size_bytes);

CREATE INDEX IF NOT EXISTS letters_by_reason ON letters (stage, code);

-- One row: what is there, and what had to go since the file was made.
CREATE TABLE IF NOT EXISTS totals (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    letter_count INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    expired_count INTEGER NOT NULL,
    expired_bytes INTEGER NOT NULL
);

INSERT OR IGNORE INTO totals VALUES (1, 0, 0, 0, 0);

CREATE TRIGGER IF NOT EXISTS letter_comes AFTER INSERT ON letters BEGIN
    UPDATE totals SET letter_count = letter_count + 1, size_bytes = size_bytes + NEW.size_bytes;
END;

CREATE TRIGGER IF NOT EXISTS letter_goes AFTER DELETE ON letters BEGIN
    UPDATE totals SET letter_count = letter_count - 1, size_bytes = size_bytes - OLD.size_bytes;
END;

CREATE TRIGGER IF NOT EXISTS letter_changes AFTER UPDATE ON letters BEGIN
    UPDATE totals SET size_bytes = size_bytes - OLD.size_bytes + NEW.size_bytes;
END;
