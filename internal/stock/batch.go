package stock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
)

// batch is group commit by the client: the requests of one goods that wait in a replica while a commit is under way go
// together in the next transaction (DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD
// 1984). No timer collects them. A request that comes alone is the same one round trip as with update; the slower the
// server, the more requests share its next commit.
//
// As many are granted as fit, in the order of arrival: one that asks for too much does not stand in the way of a smaller
// one behind it.
//
// A request with work to do inside the critical section does not join. Its work would keep all others of its batch from
// their answers, or theirs keep it from its own: it is a transaction by itself, as with update.
type batch struct {
	db    *sqlx.DB
	alone unbatched // for requests with work to do, and for orders of several goods
	queue batchQueue
	wait  time.Duration
	// try decides on a batch in one transaction: it sets the receipts' Remaining, or the errs, of the members that are
	// undecided. An error is the outcome of them all.
	try func(ctx context.Context, conn *sqlx.Conn, g *gathering) error
}

// unbatched is a strategy, each of whose requests is a transaction by itself.
type unbatched interface {
	Deducter
	Orderer
}

func newBatch(d Deps, _ Store) (Deducter, error) {
	store := mysqlStore{d.MySQL}
	return gather(d, update{store}, tryBatch), nil
}

func (b *batch) Deduct(ctx context.Context, req Request) (Receipt, error) {
	if req.Hold > 0 || req.Pause != nil {
		return b.alone.Deduct(ctx, req)
	}
	return b.queue.deduct(ctx, req)
}

// Order joins no batch: in the line of one goods it would keep the goods before that one locked.
// Without work to do, its section is the time of the reply, as of a batch: deductions beside it tell no more of theirs.
func (b *batch) Order(ctx context.Context, req OrderRequest) (OrderReceipt, error) {
	section := arrive()
	receipt, err := b.alone.Order(ctx, req)
	if err == nil && !receipt.Replayed && req.Hold == 0 && req.Pause == nil {
		section.enter()
		section.left = section.entered
		receipt.Receipt = section.receipt(0, 1)
	}
	return receipt, err
}

// gather makes a strategy that decides on batches by try. What does not join one is left to alone.
func gather(d Deps, alone unbatched, try func(context.Context, *sqlx.Conn, *gathering) error) *batch {
	b := &batch{db: d.MySQL, alone: alone, wait: d.LockWait, try: try}
	b.queue.settle = b.settle
	return b
}

// settle decides on a batch, and again where the server has undone it for the sake of another transaction.
func (b *batch) settle(ctx context.Context, g *gathering) {
	// The wait for a connection comes first: it ends with the leader's own time, and whoever arrives meanwhile joins.
	conn, err := b.db.Connx(ctx)
	if err != nil {
		if ctx.Err() == nil { // the server's fault, not the leader's: the others would fare no better
			g.close()
		}
		refuse(g.members, unsent(err))
		return
	}
	defer conn.Close()
	ctx = context.WithoutCancel(ctx)
	g.close()
	started := time.Now()
	for attempt := 1; ; attempt++ {
		err := b.try(ctx, conn, g)
		if err == nil {
			conclude(g.undecided, attempt)
			return
		}
		if !toBeTriedAgain(err) || time.Since(started) > b.wait {
			refuse(g.undecided, err)
			return
		}
		_ = backOff(ctx, attempt) // ctx has no end
	}
}

// toBeTriedAgain says that nothing has come of a batch because of another transaction, and that it may fare better now.
func toBeTriedAgain(err error) bool { return undone(err) || errors.Is(err, errKeyTaken) }

// tryBatch is one statement where there is enough for all, as there is until the goods runs out, or too little for any.
func tryBatch(ctx context.Context, conn *sqlx.Conn, g *gathering) error {
	members := g.live()
	decided, err := deductTogether(ctx, conn, g.goodsID, members, written)
	if err != nil || decided {
		return err
	}
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		return refusal(err)
	}
	defer tx.Rollback()
	if err := (mysqlTx{tx}).deductWhatFits(ctx, g.goodsID, members); err != nil {
		return err
	}
	return committed(tx.Commit())
}

// deductWhatFits grants some of a batch under the row's lock, so that the units it decides by are those that there are.
func (s mysqlTx) deductWhatFits(ctx context.Context, goodsID int64, members []*member) error {
	units, err := s.readForUpdate(ctx, goodsID)
	if err != nil {
		return err
	}
	return s.write(ctx, goodsID, allot(members, units))
}

// session is a connection, or a transaction on it.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	GetContext(ctx context.Context, dest any, query string, args ...any) error
}

// deductTogether grants all of a batch in one statement, whose error it classifies by sent. Where there is too little for
// all, it writes nothing, and has decided if there is too little for any.
func deductTogether(ctx context.Context, in session, goodsID int64, members []*member, sent func(error) error) (decided bool, err error) {
	if len(members) == 0 {
		return true, nil
	}
	var asked int64
	for _, m := range members {
		asked += int64(m.Count)
	}
	result, err := in.ExecContext(ctx, deductSQL, asked, goodsID, asked)
	if err != nil {
		return false, sent(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, err
	}
	if rows == 1 {
		remaining, err := result.LastInsertId()
		allot(members, remaining+asked)
		return true, err
	}
	var units int64
	if err := in.GetContext(ctx, &units, selectSQL, goodsID); err != nil {
		return false, unwritten(goodsID, err)
	}
	return allot(members, units) == units, nil
}

// allot gives out units in the order of arrival, to whoever asks for no more than are left, and returns those left.
func allot(members []*member, units int64) int64 {
	for _, m := range members {
		if int64(m.Count) > units {
			m.err = &SoldOutError{m.GoodsID, m.Count, units}
			continue
		}
		units -= int64(m.Count)
		m.receipt.Remaining, m.err = units, nil
	}
	return units
}

// conclude makes the receipts of those who were granted. Their critical sections are one: the time of the reply is all
// that a client can say of it.
func conclude(members []*member, attempts int) {
	now := monotonic.now()
	for _, m := range members {
		if m.err == nil {
			m.section.entered, m.section.left = now, now
			m.receipt = m.section.receipt(m.receipt.Remaining, attempts)
		}
	}
}

// refuse gives every request of a batch the same error.
func refuse(members []*member, err error) {
	for _, m := range members {
		m.receipt, m.err = Receipt{}, err
	}
}
