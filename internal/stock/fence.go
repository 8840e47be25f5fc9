package stock

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// A fenced store is the store of one holder of a lock, known by the lock's token (Kleppmann, "How to do distributed
// locking", 2016). Its read claims the goods first, which a later holder's token forbids; its write is refused once
// another has claimed the goods.
//
// A check in the write alone would not do. A holder that was stopped past its lease wakes up, and writes between the next
// holder's read and write: no later token has been seen by then, so the write is let in, and the next one buries it.
//
// Goods that are sold out are not claimed: nothing will be written, and of a flash sale most requests are of that kind.
//
// Only tokens of one issuer can be compared: those of Redis are microseconds, those of etcd revisions. A claim by another
// issuer is let in whatever its token is, so that two kinds of fenced locks on one goods hold up each other, but lose
// nothing: the write of whoever did not claim last is refused. A lock service that has lost its data, and counts from the
// beginning, is refused until SetStock forgets the tokens.
//
// A strategy that is not fenced neither claims nor looks at claims: beside it, a fence guards nothing. A goods must be sold
// by fenced strategies only.

const (
	// One round trip: LAST_INSERT_ID(expr) hands expr to the client.
	claimSQL = `UPDATE good_stock SET fence = ?, fence_issuer = ?, stock = LAST_INSERT_ID(stock)
		WHERE goods_id = ? AND stock >= ? AND (fence_issuer <> ? OR fence < ?)`
	fencedOverwriteSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ? AND fence_issuer = ? AND fence = ?"

	lastClaimSQL = "SELECT stock, fence, fence_issuer FROM good_stock WHERE goods_id = ?"
)

// claim is who claims a goods, or has.
type claim struct {
	token  uint64
	issuer string // strategy; empty where nobody has
}

func (c claim) String() string {
	if c.issuer == "" {
		return "nobody"
	}
	return fmt.Sprintf("token %d of %s", c.token, c.issuer)
}

// refused is the ErrFenced of a claim, or of its write, after another's.
func (c claim) refused(goodsID int64, last claim) error {
	return fmt.Errorf("%w: goods %d is claimed by %v, which refuses %v; if it stays so, the lock service has lost its data: "+
		"set the stock anew (PUT /admin/stock/%d), which forgets the claims", ErrFenced, goodsID, last, c, goodsID)
}

// mysqlFenced keeps the claim in the columns fence and fence_issuer of the goods' row.
type mysqlFenced struct {
	mysqlStore
	own   claim
	count int
}

func (s mysqlStore) fence(issuer string, token uint64, count int) store {
	return mysqlFenced{s, claim{token, issuer}, count}
}

// read claims and reads. A claim whose reply is lost has deducted nothing, and stands in nobody's way but this holder's.
func (s mysqlFenced) read(ctx context.Context, goodsID int64) (int64, error) {
	result, err := s.db.ExecContext(ctx, claimSQL, s.own.token, s.own.issuer, goodsID, s.count, s.own.issuer, s.own.token)
	if err != nil {
		return 0, refusal(err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	if rows == 0 {
		// Sold out, a later claim, or no such goods. Only a refusal pays for the second question.
		units, last, err := lastClaim(ctx, s.db, goodsID)
		if err == nil && units >= int64(s.count) {
			err = s.own.refused(goodsID, last)
		}
		return units, err
	}
	return result.LastInsertId()
}

func (s mysqlFenced) write(ctx context.Context, goodsID, units int64) error {
	result, err := s.exec(ctx, fencedOverwriteSQL, units, goodsID, s.own.issuer, s.own.token)
	if err != nil {
		return err
	}
	return s.own.stood(ctx, s.db, goodsID, result)
}

// writeFenced writes where the goods is still claimed so.
func (s mysqlTx) writeFenced(ctx context.Context, l level) error {
	result, err := s.tx.ExecContext(ctx, fencedOverwriteSQL, l.units, l.goodsID, l.claim.issuer, l.claim.token)
	if err != nil {
		return refusal(err)
	}
	return l.claim.stood(ctx, s.tx, l.goodsID, result)
}

// stood is nil where a write found the goods still claimed so.
func (c claim) stood(ctx context.Context, in sqlx.QueryerContext, goodsID int64, result sql.Result) error {
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		// Nothing was written, whatever comes of asking by whom it is refused.
		_, last, _ := lastClaim(ctx, in, goodsID)
		err = c.refused(goodsID, last)
	}
	return err
}

// lastClaim reads the stock and who has claimed it.
func lastClaim(ctx context.Context, in sqlx.QueryerContext, goodsID int64) (units int64, last claim, err error) {
	err = in.QueryRowxContext(ctx, lastClaimSQL, goodsID).Scan(&units, &last.token, &last.issuer)
	return units, last, unwritten(goodsID, err)
}

var (
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/write.lua
	writeLua string

	claimScript = redis.NewScript(claimLua)
	writeScript = redis.NewScript(writeLua)
)

// redisFenced keeps the claim in a key beside the goods' stock.
type redisFenced struct {
	redisStore
	own   claim
	count int
}

func (s redisStore) fence(issuer string, token uint64, count int) store {
	return redisFenced{s, claim{token, issuer}, count}
}

func fenceKey(goodsID int64) string { return redisKey(goodsID) + ":fence" }

func (s redisFenced) read(ctx context.Context, goodsID int64) (int64, error) {
	units, err := claimScript.Run(ctx, s.client, []string{redisKey(goodsID), fenceKey(goodsID)}, s.own.issuer, s.own.token, s.count).Int64()
	return units, s.refused(goodsID, err, redisUnwritten)
}

// write runs apart from ctx once it begins, as redisStore.write does.
func (s redisFenced) write(ctx context.Context, goodsID, units int64) error {
	if err := ctx.Err(); err != nil {
		return interrupted(context.Cause(ctx))
	}
	err := writeScript.Run(context.WithoutCancel(ctx), s.client, []string{redisKey(goodsID), fenceKey(goodsID)}, s.own.issuer, s.own.token, units).Err()
	return s.refused(goodsID, err, redisWritten)
}

// refused classifies what a script refuses, and leaves any other error to classify.
func (s redisFenced) refused(goodsID int64, err error, classify func(error) error) error {
	switch {
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, goodsID)
	case redis.HasErrorPrefix(err, "FENCED"):
		var last claim
		_, _ = fmt.Sscanf(err.Error(), "FENCED %d %s", &last.token, &last.issuer)
		return s.own.refused(goodsID, last)
	}
	return classify(err)
}
