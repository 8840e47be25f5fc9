package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Locks of MySQL, as wire.Exchange names them. GET_LOCK has no lease: its lock ends with its connection.
const (
	namedLock = "mysql:lock:"
	lockRow   = "mysql:lock_row"
)

func isLockInMySQL(name string) bool { return name == lockRow || strings.HasPrefix(name, namedLock) }

// heldInMySQL lists those of the locks that are held. A row of lock_row is held for one of the items.
func (l *lane) heldInMySQL(ctx context.Context, locks, items []string) (held []string) {
	for _, lock := range locks {
		var holder *uint32
		if name, named := strings.CutPrefix(lock, namedLock); named {
			_ = l.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&holder) // as if nobody held it
		} else {
			_ = l.db.QueryRowContext(ctx, "SELECT 1 FROM lock_row WHERE name LIKE ? AND expires > UTC_TIMESTAMP(6) LIMIT 1",
				"%"+items[0]+"%").Scan(&holder)
		}
		if holder != nil {
			held = append(held, lock)
		}
	}
	return held
}

// endInMySQL ends locks. If it fails, no lock has ended, which the schedule shows.
func (l *lane) endInMySQL(ctx context.Context, locks []string) {
	for _, lock := range locks {
		name, named := strings.CutPrefix(lock, namedLock)
		if lock == lockRow {
			_, _ = l.db.ExecContext(ctx, "UPDATE lock_row SET expires = UTC_TIMESTAMP(6)")
		}
		if !named {
			continue
		}
		var id *uint32
		for l.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&id) == nil && id != nil {
			_, _ = l.db.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", *id))
			time.Sleep(time.Millisecond) // the server ends it in the background
		}
	}
}

// inCommands says how a person would end locks and delete keys.
func inCommands(keys []string) string {
	var commands, deleted []string
	for _, key := range keys {
		name, named := strings.CutPrefix(key, namedLock)
		switch {
		case named:
			commands = append(commands, fmt.Sprintf("KILL CONNECTION (the one with IS_USED_LOCK('%s'))", name))
		case key == lockRow:
			commands = append(commands, "UPDATE lock_row SET expires = UTC_TIMESTAMP(6)")
		default:
			deleted = append(deleted, key)
		}
	}
	if len(deleted) > 0 {
		commands = append(commands, "DEL "+strings.Join(deleted, " "))
	}
	return strings.Join(commands, "; ")
}

// storeOf returns the store that has the keys or locks.
func storeOf(keys []string) string {
	if slices.ContainsFunc(keys, isLockInMySQL) {
		return "mysql"
	}
	return "redis"
}
