-- Replicas delete answers "sold out" after a short time, and `stock prune` deletes all old rows. The index finds the old
-- rows of one outcome without passing over those of the other.
--
-- A prepared statement replaces the old index only if it is there, so that the migration can run again: see 00001.

-- +goose Up
SET @index_outcome = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE ledger ADD KEY ledger_outcome (outcome, created_at), DROP KEY ledger_created_at', 'SELECT 1')
    FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = 'ledger' AND index_name = 'ledger_outcome'
);
PREPARE index_outcome FROM @index_outcome;
EXECUTE index_outcome;
DEALLOCATE PREPARE index_outcome;

-- +goose Down
ALTER TABLE ledger ADD KEY ledger_created_at (created_at), DROP KEY ledger_outcome;
