-- name: put
INSERT INTO letters VALUES (
    :id, :stage, :code, :reason, :failed_at, :attempts, :remote, :key_id, :producer, :violations,
    :event_id, :received_at, :kind, :source, :traceparent, :size_bytes, :payload
)
ON CONFLICT (id) DO UPDATE SET
    stage = excluded.stage, code = excluded.code, reason = excluded.reason, failed_at = excluded.failed_at,
    attempts = excluded.attempts, remote = excluded.remote, key_id = excluded.key_id,
    producer = excluded.producer, violations = excluded.violations, event_id = excluded.event_id,
    received_at = excluded.received_at, kind = excluded.kind, source = excluded.source,
    traceparent = excluded.traceparent, size_bytes = excluded.size_bytes, payload = excluded.payload

-- name: find
SELECT
    id, stage, code, reason, failed_at, attempts, remote, key_id, violations,
    event_id, received_at, kind, source, traceparent, payload
FROM letters
WHERE id > :after
    AND (:stage IS NULL OR stage = :stage)
    AND (:code IS NULL OR code = :code)
    AND (:since IS NULL OR failed_at >= :since)
    AND (:until IS NULL OR failed_at < :until)
    AND (:producer IS NULL OR instr(producer, :producer) > 0)
    AND (
        :text IS NULL
        OR instr(reason, :text) > 0
        OR instr(violations, :text) > 0
        OR instr(payload, CAST(:text AS BLOB)) > 0
    )
ORDER BY id
LIMIT :limit

-- name: get
SELECT
    id, stage, code, reason, failed_at, attempts, remote, key_id, violations,
    event_id, received_at, kind, source, traceparent, payload
FROM letters
WHERE id = :id

-- name: newest
SELECT id FROM letters ORDER BY id DESC LIMIT 1

-- name: remove
DELETE FROM letters WHERE id = :id

-- name: count
SELECT stage, code, count(*) FROM letters GROUP BY stage, code

-- name: matching
-- How many letters the same filters as those of `find` let through.
SELECT count(*)
FROM letters
WHERE id > :after
    AND (:stage IS NULL OR stage = :stage)
    AND (:code IS NULL OR code = :code)
    AND (:since IS NULL OR failed_at >= :since)
    AND (:until IS NULL OR failed_at < :until)
    AND (:producer IS NULL OR instr(producer, :producer) > 0)
    AND (
        :text IS NULL
        OR instr(reason, :text) > 0
        OR instr(violations, :text) > 0
        OR instr(payload, CAST(:text AS BLOB)) > 0
    )

-- name: purge
DELETE FROM letters
WHERE id > :after
    AND (:stage IS NULL OR stage = :stage)
    AND (:code IS NULL OR code = :code)
    AND (:since IS NULL OR failed_at >= :since)
    AND (:until IS NULL OR failed_at < :until)
    AND (:producer IS NULL OR instr(producer, :producer) > 0)
    AND (
        :text IS NULL
        OR instr(reason, :text) > 0
        OR instr(violations, :text) > 0
        OR instr(payload, CAST(:text AS BLOB)) > 0
    )

-- name: totals
SELECT letter_count, size_bytes, expired_count, expired_bytes FROM totals

-- name: oldest
SELECT id, failed_at, size_bytes FROM letters ORDER BY failed_at, id

-- name: expired
UPDATE totals SET expired_count = expired_count + :count, expired_bytes = expired_bytes + :bytes
