package explore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Service is a service of the user, in any language. In its texts, {item}, {count} and {key} stand for the item, the
// units and the name of a deduction.
type Service struct {
	Command []string // program and arguments; one process for each replica
	Request string   // that deducts: method and path
	Body    string   // of the request; empty: none
	Headers []string // of the request, such as "Authorization: Bearer {key}"
	Sold    string   // what an answer of 2xx contains if it confirms a sale; otherwise, too few units are left
	Keyed   bool     // it promises to deduct once for each key, which is sent as Idempotency-Key

	Setup string // SQL that makes its tables; empty: it uses good_stock
	// SetStock and ReadStock set and read the units of an item: statements of SQL, or commands of Redis after "redis ".
	SetStock, ReadStock string
}

// The defaults of a Service.
const (
	DefaultRequest   = "POST /stock/deduct"
	DefaultBody      = `{"goods_id":{item},"count":{count}}`
	DefaultSetStock  = "REPLACE INTO good_stock (goods_id, stock) VALUES ({item}, {count})"
	DefaultReadStock = "SELECT stock FROM good_stock WHERE goods_id = {item}"
)

// redisPrefix is what begins a command of Redis.
const redisPrefix = "redis "

// Check returns what is wrong with the description.
func (s Service) Check() error {
	method, path, _ := strings.Cut(s.Request, " ")
	switch {
	case len(s.Command) == 0:
		return errors.New("the command is missing: give it after --")
	case method == "" || method != strings.ToUpper(method) || !strings.HasPrefix(path, "/"):
		return fmt.Errorf("--request %q: must be a method and a path, such as %q", s.Request, DefaultRequest)
	case slices.ContainsFunc(s.Headers, func(h string) bool { return !strings.Contains(h, ":") }):
		return fmt.Errorf("--header %q: must be a name, a colon and a value", s.Headers)
	case !strings.Contains(s.Request+s.Body, "{item}"):
		return errors.New("neither --request nor --body has {item}: every schedule deducts from an item of its own")
	case !strings.Contains(s.SetStock, "{item}") || !strings.Contains(s.SetStock, "{count}"):
		return fmt.Errorf("--set-stock %q: must have {item} and {count}", s.SetStock)
	case !strings.Contains(s.ReadStock, "{item}"):
		return fmt.Errorf("--read-stock %q: must have {item}", s.ReadStock)
	}
	return nil
}

// Choice returns what takes the place of a strategy.
func (s Service) Choice() scenario.Choice {
	no := false
	// Without a fence or keys, it is told what a late write or a retry does, and not blamed for it.
	claim := scenario.Claim{
		OneReplica: verify.ClaimCorrect, TwoReplicas: verify.ClaimCorrect, HolderCrash: "the stock agrees with the answers",
	}
	if s.Keyed {
		claim.ClientRetry = "repeats-answer"
	}
	return scenario.Choice{Store: oracle.MySQL, Strategy: scenario.Strategy{
		Name: strings.Join(s.Command, " "), Stores: []string{oracle.MySQL}, Claim: claim, Idempotent: s.Keyed,
		ReportsRemaining: &no,
	}}
}

// prepare makes the tables.
func (s Service) prepare(ctx context.Context, l *lane) error {
	if s.Setup == "" {
		return nil
	}
	if _, err := l.db.ExecContext(ctx, s.Setup); err != nil {
		return fmt.Errorf("execute the statements of --setup: %w", err)
	}
	return nil
}

// start starts a process of the service. It learns from its environment where it listens and where its stores are.
func (s Service) start(
	ctx context.Context, t *topology.Topology, name string, at topology.Addresses,
) (*topology.Replica, error) {
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil {
		return nil, err
	}
	dsn := mysql.NewConfig()
	dsn.User, dsn.Passwd, dsn.DBName = config.User, config.Passwd, config.DBName
	dsn.Net, dsn.Addr = config.Net, config.Addr
	host, port, _ := strings.Cut(config.Addr, ":")
	redisHost, redisPort, _ := strings.Cut(at.Redis[0], ":")
	return t.StartCommand(ctx, name, s.Command, map[string]string{
		"MYSQL_DSN": dsn.FormatDSN(), "MYSQL_HOST": host, "MYSQL_PORT": port, "MYSQL_USER": config.User,
		"MYSQL_PASSWORD": config.Passwd, "MYSQL_DATABASE": config.DBName,
		"MYSQL_URL": (&url.URL{
			Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Host: config.Addr, Path: config.DBName,
		}).String(),
		"REDIS_ADDR": at.Redis[0], "REDIS_HOST": redisHost, "REDIS_PORT": redisPort, "REDIS_URL": "redis://" + at.Redis[0],
	})
}

// fill replaces what stands for an item, its units and a key.
func fill(text string, item, count int64, key string) string {
	return strings.NewReplacer("{item}", strconv.FormatInt(item, 10), "{count}", strconv.FormatInt(count, 10),
		"{key}", key).Replace(text)
}

// ask executes a statement of SQL, or a command of Redis after "redis ". A number that it answers is put into answer,
// unless that is nil.
func (l *lane) ask(ctx context.Context, text string, answer *int64) (err error) {
	command, isRedis := strings.CutPrefix(text, redisPrefix)
	switch {
	case isRedis:
		var words []any
		for word := range strings.FieldsSeq(command) {
			words = append(words, word)
		}
		if reply := l.keys.Do(ctx, words...); answer == nil {
			err = reply.Err()
		} else {
			*answer, err = reply.Int64()
		}
	case answer == nil:
		_, err = l.db.ExecContext(ctx, text)
	default:
		err = l.db.GetContext(ctx, answer, text)
	}
	return err
}

func (s Service) setStock(ctx context.Context, l *lane, stock map[int64]int64) error {
	for item, units := range stock {
		text := fill(s.SetStock, item, units, "")
		if err := l.ask(ctx, text, nil); err != nil {
			return fmt.Errorf("set the stock with %q: %w", text, err)
		}
	}
	return nil
}

func (s Service) stock(ctx context.Context, l *lane, items []int64) (map[int64]int64, error) {
	stock := map[int64]int64{}
	for _, item := range items {
		text := fill(s.ReadStock, item, 0, "")
		var units int64
		if err := l.ask(ctx, text, &units); err != nil {
			return nil, fmt.Errorf("read the stock with %q: %w", text, err)
		}
		stock[item] = units
	}
	return stock, nil
}

// workloads are those of a service of which nothing is known but how it deducts one item. Nobody knows how it is
// restocked.
func (s Service) workloads(requests int) (own []workload) {
	for _, w := range workloadsOf(requests) {
		isOther := func(r request) bool { return r.kind != history.Deduct }
		if slices.ContainsFunc(w.requests, isOther) || w.special != "" && w.name != "same-key" {
			continue
		}
		w.special = "" // a key is filled into all requests
		w.faults = slices.DeleteFunc(slices.Clone(w.faults), func(name string) bool {
			return slices.Contains([]string{Restocked, StockSet}, name)
		})
		own = append(own, w)
	}
	return own
}

func (s Service) client(l *lane, at int, op history.Op) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		op.SentNS = monotonic.Now()
		err := s.send(ctx, l.replicas[at].URL, &op)
		op.ReceivedNS = monotonic.Now()
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}

// send asks the service, and notes its answer. 2xx confirms a sale, 409 is "sold out". Any other 4xx and 503 say that
// nothing was deducted. What became of the request is unknown after any other answer, and without one.
func (s Service) send(ctx context.Context, base string, op *history.Op) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	request, err := s.request(ctx, base, op)
	if err != nil {
		return err
	}
	response, err := oneConnection.Do(request)
	if err != nil {
		op.Outcome, op.Error = history.Unknown, "no answer"
		return nil // it is an outcome
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	op.Status, op.Error = response.StatusCode, response.Status
	switch code := response.StatusCode; {
	case err != nil:
		op.Outcome, op.Error = history.Unknown, "half an answer"
	case code/100 == 2 && bytes.Contains(answer, []byte(s.Sold)):
		op.Outcome, op.Error = history.Sold, ""
	case code/100 == 2, code == http.StatusConflict:
		op.Outcome = history.SoldOut
	case code/100 == 4 || code == http.StatusServiceUnavailable:
		op.Outcome = history.Busy
	default:
		op.Outcome = history.Unknown
	}
	return nil
}

func (s Service) request(ctx context.Context, base string, op *history.Op) (*http.Request, error) {
	method, path, _ := strings.Cut(fill(s.Request, op.GoodsID, op.Count, op.Name), " ")
	body := strings.NewReader(fill(s.Body, op.GoodsID, op.Count, op.Name))
	request, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", op.Name)
	for _, header := range s.Headers {
		name, value, _ := strings.Cut(fill(header, op.GoodsID, op.Count, op.Name), ":")
		request.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return request, nil
}

// oneConnection opens a connection for each request: a replica may have been restarted.
var oneConnection = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
