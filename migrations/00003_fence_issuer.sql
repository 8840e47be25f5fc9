-- Who minted the token in `fence`: a strategy. A holder's write is let in while the last claim is its own. A claim is
-- refused where its token is not above that of the same issuer; tokens of different lock services cannot be compared.
-- All this binds the holders of fenced locks only: a goods must be sold either by them alone, or by none of them.
--
-- MySQL knows no ADD COLUMN IF NOT EXISTS, so that the statement is made here: it must be able to run again.

-- +goose Up
SET @add_issuer = (
    SELECT IF(COUNT(*) = 0, 'ALTER TABLE good_stock ADD COLUMN fence_issuer VARCHAR(32) NOT NULL DEFAULT ''''', 'SELECT 1')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'fence_issuer'
);
PREPARE add_issuer FROM @add_issuer;
EXECUTE add_issuer;
DEALLOCATE PREPARE add_issuer;

-- +goose Down
ALTER TABLE good_stock DROP COLUMN fence_issuer;
