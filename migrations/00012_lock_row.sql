-- The locks of `lock-mysql-row`: a row for each lock that somebody holds, or held and did not release.

-- +goose Up
CREATE TABLE IF NOT EXISTS lock_row (
    -- Compared byte by byte.
    name    VARBINARY(255) NOT NULL,
    -- Random: only the holder knows it.
    owner   VARBINARY(64)  NOT NULL,
    -- By the server's clock, in UTC. Anybody may take over the lock from then on.
    expires DATETIME(6)    NOT NULL,
    PRIMARY KEY (name)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE IF EXISTS lock_row;
