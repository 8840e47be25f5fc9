package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
)

// shownItem is the item that the page sells and shows.
const shownItem = 1

// keepLooking keeps the state of the lab up to date while somebody watches.
func (c *Console) keepLooking() {
	for monotonic.Sleep(c.ctx, time.Second) == nil {
		if c.board.watched() {
			c.look(c.ctx)
		}
	}
}

// look reads the state of the lab. During a run, it asks no server: that would be measured too.
func (c *Console) look(ctx context.Context) {
	replicas := make([]ReplicaState, 0, len(c.lab.Topology.Replicas))
	for _, r := range c.lab.Topology.Replicas {
		replica := ReplicaState{Name: r.Name, URL: r.URL, State: r.State()}
		if process := r.Process(); process != nil && replica.State != topology.Dead {
			replica.PID = process.PID
		}
		replicas = append(replicas, replica)
	}
	if c.runGoesOn() {
		c.board.update(func(s *State) { s.Lab.Replicas = replicas })
		return
	}
	contents := c.viewer.Look(ctx, shownItem, c.lockNames())
	held := c.listHeld()
	if ctx.Err() == nil {
		c.board.update(func(s *State) { s.Lab.Replicas, s.Lab.Contents, s.Lab.Held = replicas, &contents, held })
	}
}

// lockNames returns the strategies that lock.
func (c *Console) lockNames() (names []string) {
	for _, s := range c.catalogue {
		if strings.HasPrefix(s.Name, "lock-") {
			names = append(names, s.Name)
		}
	}
	return names
}

// adminTime is how long a replica may take to answer the console.
const adminTime = 2 * time.Second

// logf notes what was done.
func (c *Console) logf(format string, args ...any) {
	const kept = 12
	entry := time.Now().Format(time.TimeOnly) + "  " + fmt.Sprintf(format, args...)
	c.board.update(func(s *State) {
		s.Lab.Log = append(slices.Clip(s.Lab.Log), entry)
		s.Lab.Log = s.Lab.Log[max(0, len(s.Lab.Log)-kept):]
	})
}

func (c *Console) replica(name string) (*topology.Replica, error) {
	for _, r := range c.lab.Topology.Replicas {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, refused{http.StatusNotFound, fmt.Sprintf("no replica is named %q", name)}
}

// running returns the first replica that can be asked for something.
func (c *Console) running() (*topology.Replica, error) {
	for _, r := range c.lab.Topology.Replicas {
		if r.State() == topology.Running {
			return r, nil
		}
	}
	return nil, conflict("no replica is running: continue or start one first")
}

// postReplica breaks or mends a replica.
func (c *Console) postReplica(action string) func(*http.Request) error {
	return func(request *http.Request) error {
		r, err := c.replica(request.PathValue("name"))
		if err != nil {
			return err
		}
		c.breaking.Lock()
		defer c.breaking.Unlock()
		if c.ctx.Err() != nil {
			return errStopped
		}
		state := r.State()
		switch action {
		case "stop":
			err = c.signal(r, state, topology.Running, "is stopped (SIGSTOP)", r.Pause)
		case "continue":
			err = c.signal(r, state, topology.Stopped, "goes on (SIGCONT)", r.Continue)
		case "kill":
			if state == topology.Dead {
				return conflict("%s is dead already", r.Name)
			}
			if err = r.Kill(); err == nil {
				c.logf("%s is killed (SIGKILL)", r.Name)
			}
		case "start":
			err = c.start(r, state)
		}
		c.look(c.ctx)
		return err
	}
}

// signal sends a signal to a replica in the wanted state, and waits up to a second for the state to change.
func (c *Console) signal(r *topology.Replica, state, want, done string, send func() error) error {
	if state != want {
		return conflict("%s is %s", r.Name, state)
	}
	if err := send(); err != nil {
		return err
	}
	for began := time.Now(); r.State() == state && time.Since(began) < time.Second; {
		time.Sleep(5 * time.Millisecond)
	}
	c.logf("%s %s", r.Name, done)
	return nil
}

// start starts a replica that is dead.
func (c *Console) start(r *topology.Replica, state string) error {
	if state != topology.Dead {
		return conflict("%s is %s: only a dead replica can be started", r.Name, state)
	}
	if err := r.Restart(c.ctx); err != nil {
		return err
	}
	c.logf("%s is started again, pid %d", r.Name, r.Process().PID)
	c.options.Started(r)
	return nil
}

// errRunGoesOn refuses what would be missing from the books of a run.
var errRunGoesOn = conflict("a run is going on, and it must be the only one that sells: wait for its end, or cancel it")

// admit lets a request of the page through. It refuses it during a run, whose books would lack it, and while a sale is
// about to be held, because the proxy could hold a message of this request instead. No run begins until answered is
// called.
func (c *Console) admit() (answered func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.goesOn("run"):
		return nil, errRunGoesOn
	case c.goesOn("hold"):
		return nil, errHoldGoesOn
	}
	c.waiting++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
	}, nil
}

// admitting admits requests for an action once their bodies are read, and shows what has become of the lab.
func admitting[T any](c *Console, action func(*http.Request, T) error) func(*http.Request) error {
	return reading(func(r *http.Request, body T) error {
		answered, err := c.admit()
		if err != nil {
			return err
		}
		defer answered()
		defer c.look(c.ctx)
		return action(r, body)
	})
}

// maxUnits is the largest stock or count that the page may ask for.
const maxUnits = 1_000_000

type stockRequest struct {
	Stock *int64 `json:"stock"`
}

func (c *Console) postStock(r *http.Request, body stockRequest) error {
	if body.Stock == nil {
		return malformed("stock is missing: a number from 0 to %d is needed", maxUnits)
	}
	stock := *body.Stock
	if stock < 0 || stock > maxUnits {
		return malformed("%d units: a number from 0 to %d is needed", stock, maxUnits)
	}
	replica, err := c.running()
	if err != nil {
		return err
	}
	service := c.lab.Target.Service
	service.Admin = replica.AdminURL
	if err := service.SetStock(r.Context(), map[int64]int64{shownItem: stock}); err != nil {
		return err
	}
	c.logf("the stock of item %d is set to %d, in every store", shownItem, stock)
	return nil
}

type restockRequest struct {
	Store string `json:"store"`
	Count int64  `json:"count"`
}

func (c *Console) postRestock(r *http.Request, body restockRequest) error {
	switch {
	case body.Count < 1 || body.Count > maxUnits:
		return malformed("%d units: a number from 1 to %d is needed", body.Count, maxUnits)
	case !slices.Contains(oracle.Stores, body.Store):
		return malformed("no store is named %q: they are %s", body.Store, strings.Join(oracle.Stores, ", "))
	}
	replica, err := c.running()
	if err != nil {
		return err
	}
	op := history.Op{Kind: history.Restock, Name: "restock-" + rand.Text(), GoodsID: shownItem, Count: body.Count}
	op, err = traffic.RestockOne(r.Context(), replica.AdminURL, body.Store, adminTime, op)
	if err != nil {
		return err
	}
	if op.Outcome != history.Sold {
		return conflict("nothing was put back: %s", op.Error)
	}
	c.logf("%d units of item %d are put back in %s", body.Count, shownItem, body.Store)
	return nil
}

type lockRequest struct {
	Server string `json:"server"`
	Key    string `json:"key"`
}

// postDeleteLock deletes the key of a lock that the page shows.
func (c *Console) postDeleteLock(r *http.Request, body lockRequest) error {
	t := c.lab.Topology
	name := strings.TrimSuffix(strings.TrimPrefix(body.Key, t.KeyPrefix), fmt.Sprintf(":{%d}", shownItem))
	if t.KeyPrefix+name == body.Key || !slices.Contains(c.lockNames(), name) {
		return malformed("%q is not the key of a lock on item %d", body.Key, shownItem)
	}
	servers := map[string][]string{"redis": t.Redis}
	for i, address := range t.Redlock {
		servers[fmt.Sprintf("redlock-%d", i+1)] = []string{address}
	}
	addresses, known := servers[body.Server]
	if !known {
		return malformed("no Redis is named %q", body.Server)
	}
	options := t.Account.RedisOptions(addresses...)
	options.MaxRetries, options.DisableIdentity = -1, true
	client := redis.NewUniversalClient(options)
	defer client.Close()
	deleted, err := client.Del(r.Context(), body.Key).Result()
	if err != nil {
		return err
	}
	if deleted == 0 {
		return conflict("%s is not locked any more", body.Key)
	}
	c.logf("%s is deleted from %s: whoever holds the lock does not know", body.Key, body.Server)
	return nil
}

// saleRequest is a deduction, or the cancellation of one, that the page asks for.
type saleRequest struct {
	Strategy string        `json:"strategy"`
	Replica  string        `json:"replica"` // empty: nginx chooses one
	Count    int64         `json:"count"`
	Hold     messages.Step `json:"hold"` // at which the sale is held; empty: at none
	Key      string        `json:"key"`  // Idempotency-Key; empty: none
	Cancel   bool          `json:"cancel"`
}

// keyPattern matches the keys that the page sends: they need no quotes in a header.
var keyPattern = regexp.MustCompile(`^[\w.:-]{0,255}$`)

// asked says what is asked for.
func (r saleRequest) asked() string {
	text := fmt.Sprintf("%s, units: %d", r.Strategy, r.Count)
	if r.Cancel {
		text = r.Strategy + ", cancel"
	}
	if r.Key != "" {
		text += ", key " + r.Key
	}
	if r.Replica != "" {
		text += ", " + r.Replica
	}
	if r.Hold != "" {
		text += ", to be held at its " + string(r.Hold)
	}
	return text
}

func (c *Console) postSale(r *http.Request, body saleRequest) error {
	strategy, known := c.strategy(body.Strategy)
	switch {
	case !known:
		return malformed("no strategy is named %q", body.Strategy)
	case body.Count < 1 || body.Count > maxUnits:
		return malformed("%d units: a number from 1 to %d is needed", body.Count, maxUnits)
	case !keyPattern.MatchString(body.Key):
		return malformed("the key %q has more than 255 characters, or others than letters, digits and . : - _", body.Key)
	case body.Key != "" && !strategy.Idempotent:
		return conflict("%s keeps no idempotency keys: leave the key empty, or choose another strategy", strategy.Name)
	case body.Cancel && (body.Key == "" || body.Hold != ""):
		return malformed("a sale is cancelled by its key, and cannot be held: give the key only")
	case body.Hold != "" && !slices.Contains(messages.Steps, body.Hold):
		return malformed("a sale cannot be held at %q: the steps are %v", body.Hold, messages.Steps)
	case body.Hold != "" && len(c.lab.Topology.Proxies) == 0:
		return conflict("nothing can be held: start the lab with --hold")
	}
	base := c.lab.Topology.URL
	if body.Replica != "" {
		replica, err := c.replica(body.Replica)
		if err != nil {
			return err
		}
		base = replica.URL
	}
	answered, err := c.admit()
	if err != nil {
		return err
	}
	if body.Hold != "" {
		return c.sellAndHold(r.Context(), base, strategy, body, answered)
	}
	c.sell(base, strategy, body, func(string) { answered() })
	return nil
}

const (
	// saleTime is how long the page waits for the answer to a sale. It is longer than the service may take.
	saleTime = 30 * time.Second
	// shownSales is how many of them the page shows.
	shownSales = 12
)

// sell sends a request in the background, and calls answered with its answer. Many may wait at the same time.
func (c *Console) sell(
	base string, strategy scenario.Strategy, body saleRequest, answered func(answer string),
) (name string) {
	name, id := c.nextSale()
	c.board.update(func(s *State) {
		s.Lab.Sales = append(slices.Clip(s.Lab.Sales), Sale{Name: name, Asked: body.asked()})
		s.Lab.Sales = s.Lab.Sales[max(0, len(s.Lab.Sales)-shownSales):]
	})
	c.tasks.Go(func() {
		load := traffic.Load{
			Strategy: strategy.Name, Store: strategy.Stores[0], Keys: body.Key != "", Timeout: saleTime,
		}
		if body.Hold != "" {
			load.Timeout = HoldTime
		}
		op := history.Op{Kind: history.Deduct, Name: cmp.Or(body.Key, id), GoodsID: shownItem, Count: body.Count}
		if body.Cancel {
			op.Kind, op.Count = history.CancelSale, 0 // everything
		}
		op, err := traffic.SendOne(c.ctx, base, load, op)
		answer, done := describe(op, err), op.Outcome == history.Sold || op.Outcome == history.Done
		answered(answer)
		c.board.update(func(s *State) {
			s.Lab.Sales = slices.Clone(s.Lab.Sales)
			for i := range s.Lab.Sales {
				if s.Lab.Sales[i].Name == name {
					s.Lab.Sales[i].Answer, s.Lab.Sales[i].Sold = answer, done
				}
			}
		})
		c.look(c.ctx)
	})
	return name
}

// describe says what came of a sale, or of the cancellation of one.
func describe(op history.Op, err error) string {
	done, refused := "sold", "refused"
	if op.Kind == history.CancelSale {
		done, refused = "cancelled", "not cancelled"
	}
	answer := refused + ": " + history.InWords(op.Error)
	switch {
	case err != nil:
		return err.Error()
	case op.Outcome == history.Done && op.Sold == 0:
		answer = "cancelled: nothing was sold, and nothing will be"
	case op.Outcome == history.Done:
		answer = fmt.Sprintf("%s: %d of %d units cancelled, %d put back", op.State, op.Cancelled, op.Sold, op.GivenBack)
	case op.Outcome == history.Sold && op.OmitsRemaining:
		answer = "sold by " + op.Replica
	case op.Outcome == history.Sold:
		answer = fmt.Sprintf("sold by %s, %d remain", op.Replica, op.Remaining)
	case op.Outcome == history.SoldOut:
		answer = fmt.Sprintf("sold out, %d remain", op.Remaining)
	case op.Outcome == history.Unknown:
		answer = fmt.Sprintf("it may have been %s: %s", done, history.InWords(op.Error))
	}
	if op.Replayed {
		answer += " (replayed)"
	}
	return answer
}

// nextSale returns the name of a sale, and an id that no request to the service had before.
func (c *Console) nextSale() (name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sales++
	return fmt.Sprintf("sale %d", c.sales), fmt.Sprintf("console-%.6s-%d", strings.ToLower(c.id), c.sales)
}
