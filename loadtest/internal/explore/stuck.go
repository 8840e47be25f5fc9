package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stock/loadtest/internal/explore/wire"
)

// stuck is returned when nobody can go on.
type stuck struct{ whoWaits string }

func (s stuck) Error() string { return "nobody can go on: " + s.whoWaits }

// whoWaits says what each actor that has not ended waits for, and who holds it.
func (s *schedule) whoWaits(ctx context.Context) string {
	s.mu.Lock()
	var flying []*exchange
	for _, a := range s.actors {
		flying = append(flying, a.flying...)
	}
	s.mu.Unlock()
	holders := s.lane.holders(ctx, flying)
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, a := range s.actors {
		switch {
		case a.answered || !a.started || a.lost:
		case len(a.flying) > 0:
			parts = append(parts, fmt.Sprintf("%s waits for %s, in %s", a.name, s.blocker(a, holders), a.flying[0].Text))
		case len(a.pending) > 0:
			parts = append(parts, fmt.Sprintf("%s repeats %s%s", a.name, a.pending[0].Text,
				s.lastWriter(a, a.pending[0].Exchange)))
		default:
			parts = append(parts, a.name+" waits in its process")
		}
	}
	return strings.Join(parts, "; ")
}

// blocker names what an actor waits for in MySQL, and who has it. s.mu is held.
func (s *schedule) blocker(a *actor, holders []lockHolder) string {
	uses := func(of *actor, id uint32) bool {
		return slices.ContainsFunc(of.conns, func(c *wire.Conn) bool { return c.ID != 0 && c.ID == id })
	}
	for _, h := range holders {
		if !uses(a, h.Waiter) {
			continue
		}
		for _, other := range s.actors {
			if uses(other, h.Owner) {
				return other.name + ", which holds " + h.What
			}
		}
		return "another connection, which holds " + h.What
	}
	return "the store"
}

// lastWriter says who has written the key of Redis that a step asks for again and again. s.mu is held.
func (s *schedule) lastWriter(a *actor, e *wire.Exchange) string {
	for _, name := range slices.Concat(e.Writes, e.Reads) {
		at := slices.IndexFunc(s.actors, func(other *actor) bool { return other != a && other.name == s.wrote[name] })
		if at < 0 {
			continue
		}
		dead := ""
		if s.actors[at].lost {
			dead = ", which has died"
		}
		return fmt.Sprintf(": %s was last written by %s%s", strings.TrimPrefix(name, "redis:"), s.actors[at].name, dead)
	}
	return ""
}

// lockHolder is a connection to MySQL that holds what another one waits for.
type lockHolder struct {
	Waiter, Owner uint32 // ids of connections
	What          string
}

// rowWaits are the queries for locks on rows that somebody waits for: that of MySQL, and that of MariaDB.
var rowWaits = []string{
	`SELECT waiter.PROCESSLIST_ID waiter, owner.PROCESSLIST_ID owner,
		CONCAT('a lock on a row of ', l.OBJECT_NAME, ', index ', COALESCE(l.INDEX_NAME, '-')) what
		FROM performance_schema.data_lock_waits w
		JOIN performance_schema.threads waiter ON waiter.THREAD_ID = w.REQUESTING_THREAD_ID
		JOIN performance_schema.threads owner ON owner.THREAD_ID = w.BLOCKING_THREAD_ID
		JOIN performance_schema.data_locks l
			ON l.ENGINE = w.ENGINE AND l.ENGINE_LOCK_ID = w.BLOCKING_ENGINE_LOCK_ID`,
	`SELECT waiter.trx_mysql_thread_id waiter, owner.trx_mysql_thread_id owner,
		CONCAT('a lock on a row of ', SUBSTRING_INDEX(REPLACE(l.lock_table, CHAR(96), ''), '.', -1),
			', index ', COALESCE(l.lock_index, '-')) what
		FROM information_schema.INNODB_LOCK_WAITS w
		JOIN information_schema.INNODB_TRX waiter ON waiter.trx_id = w.requesting_trx_id
		JOIN information_schema.INNODB_TRX owner ON owner.trx_id = w.blocking_trx_id
		JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.blocking_lock_id`,
}

// holders returns who holds what these exchanges wait for. What cannot be read is left out: it only explains.
func (l *lane) holders(ctx context.Context, flying []*exchange) (holders []lockHolder) {
	for _, query := range rowWaits {
		if l.db.SelectContext(ctx, &holders, query) == nil {
			break
		}
	}
	for _, f := range flying {
		for _, touched := range f.Writes {
			name, named := strings.CutPrefix(touched, namedLock)
			h := lockHolder{Waiter: f.Conn.ID, What: fmt.Sprintf("the lock named %q", name)}
			if named && l.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&h.Owner) == nil {
				holders = append(holders, h)
			}
		}
	}
	return holders
}
