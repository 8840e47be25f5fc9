package size

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/stats"
)

// A Record is what was measured on a machine, and all that predictions need.
type Record struct {
	Machine string `json:"machine"`
	Basis
	Profiles []*Profile `json:"profiles"`
	Tests    []Test     `json:"tests"`
}

// A Basis is how long round trips and commits take without added delays.
type Basis struct {
	RTT              time.Duration `json:"rtt"`
	Commit           time.Duration `json:"commit"`             // of a transaction with one update
	FlushesPerCommit float64       `json:"flushes_per_commit"` // that one user waits for
}

// ReadRecord reads a record that was written as JSON.
func ReadRecord(text []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("not a record of loadtest size --measure: %w", err)
	}
	if len(r.Profiles) == 0 || r.RTT <= 0 || r.Commit <= 0 || r.FlushesPerCommit <= 0 {
		return nil, errors.New("not a complete record of loadtest size --measure")
	}
	for _, p := range r.Profiles {
		if p == nil || p.FlushTime <= 0 || len(p.Costs) == 0 ||
			slices.ContainsFunc(p.Costs, func(c Cost) bool { return c.Users < 1 }) {
			return nil, errors.New("a profile of the record is not complete")
		}
	}
	return r, nil
}

// Profile returns the profile of a strategy, or nil.
func (r *Record) Profile(strategy string) *Profile {
	i := slices.IndexFunc(r.Profiles, func(p *Profile) bool { return p.Strategy == strategy })
	if i < 0 {
		return nil
	}
	return r.Profiles[i]
}

// Target is the setting with round trips and commits of the given length. Shorter ones than those of the record cannot
// be predicted: they count as equal.
func (r *Record) Target(items int, rtt, commit time.Duration) Setting {
	more := float64(max(0, commit-r.Commit)) / r.FlushesPerCommit
	return Setting{Items: items, Replicas: usualReplicas, AddedRTT: max(0, rtt-r.RTT), AddedFlush: time.Duration(more)}
}

// Trusted is the largest error in a test with which a strategy is still predicted.
const Trusted = 0.25

// Basis measures the round trips and commits of the rig, and how late its proxies are.
func (r *Rig) Basis(ctx context.Context) (b Basis, err error) {
	r.late = 0
	if b.RTT, err = r.roundTrip(ctx, 0); err != nil {
		return b, err
	}
	const added = time.Millisecond
	slower, err := r.roundTrip(ctx, added)
	if err != nil {
		return b, err
	}
	r.late = max(0, slower-b.RTT-added)
	b.Commit, b.FlushesPerCommit, err = r.commit(ctx, b.RTT)
	return b, err
}

// roundTrip measures a round trip with the proxies adding a delay.
func (r *Rig) roundTrip(ctx context.Context, added time.Duration) (time.Duration, error) {
	client := redis.NewClient(&redis.Options{Addr: r.lab.Topology.Proxies[0].Redis.Addr()})
	defer client.Close()
	err := r.apply(Setting{AddedRTT: added})
	took, pingErr := median(200, func() error { return client.Ping(ctx).Err() })
	return took, errors.Join(err, pingErr, r.apply(Setting{}))
}

// commit measures how long the commit of one update takes without the round trip, and how many flushes it waits for.
func (r *Rig) commit(ctx context.Context, roundTrip time.Duration) (took time.Duration, flushes float64, err error) {
	config, err := mysql.ParseDSN(r.lab.Topology.MySQLDSN)
	if err != nil {
		return 0, 0, err
	}
	config.Addr = r.lab.Topology.Proxies[0].MySQL.Addr()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return 0, 0, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	exec := func(statement string) func() error {
		return func() error { _, err := db.ExecContext(ctx, statement); return err }
	}
	for _, statement := range []string{"CREATE TABLE flushed (n BIGINT)", "INSERT INTO flushed VALUES (0)"} {
		if err := exec(statement)(); err != nil {
			return 0, 0, err
		}
	}
	update := exec("UPDATE flushed SET n = n + 1")
	quick, err := median(200, update)
	slower, slowErr := time.Duration(0), r.apply(Setting{AddedFlush: slowFlushes})
	if slowErr == nil {
		slower, slowErr = median(20, update)
	}
	if err := errors.Join(err, slowErr, r.apply(Setting{}), exec("DROP TABLE flushed")()); err != nil {
		return 0, 0, err
	}
	took, flushes = quick-roundTrip, float64(slower-quick)/float64(slowFlushes)
	switch {
	case took <= 0:
		return 0, 0, fmt.Errorf("a commit takes %v, less than a round trip of %v: measure on a quiet machine",
			quick, roundTrip)
	case flushes < 0.5:
		return 0, 0, fmt.Errorf("with each flush %v longer, a commit takes %v instead of %v: "+
			"the server does not flush each commit; see innodb_flush_log_at_trx_commit", slowFlushes, slower, quick)
	}
	return took, flushes, nil
}

// median is the median time that something takes.
func median(times int, do func() error) (time.Duration, error) {
	var all []float64
	for range times {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(began)))
	}
	return time.Duration(stats.Median(all)), nil
}
