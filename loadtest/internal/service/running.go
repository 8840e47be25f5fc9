package service

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

// Running is a service with its stores.
type Running struct {
	*Description
	URLs  []string              // of its replicas
	DB    *sql.DB               // that accepts several statements at once; nil without stock in SQL
	Redis redis.UniversalClient // nil without stock in Redis
}

// OpenPostgres returns a database on the server of an address; if its name is empty, the one that the address names. It
// accepts several statements at once.
func OpenPostgres(address, database string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	config.Database = cmp.Or(database, config.Database)
	db := stdlib.OpenDB(*config)
	db.SetMaxIdleConns(8)
	return db, nil
}

// SetUp makes the tables of a service that is started with a command. env is the environment of its processes.
func (d *Description) SetUp(ctx context.Context, db *sql.DB, env []string) error {
	if d.SetupSQL != "" {
		if _, err := db.ExecContext(ctx, d.SetupSQL); err != nil {
			return fmt.Errorf("execute the statements of setup (%s): %w", d.Setup, err)
		}
	}
	if len(d.Migrate) == 0 {
		return nil
	}
	out, err := servers.Run(ctx, servers.Command{
		Name: strings.Join(d.Migrate, " "), Path: d.Migrate[0], Args: d.Migrate[1:],
		Dir: d.Dir, Env: append(os.Environ(), env...),
	})
	if err != nil {
		return fmt.Errorf("migrate: %w; its output ends with:\n%s", err, out[max(0, len(out)-shownOutput):])
	}
	return nil
}

const shownOutput = 2000 // bytes

// Close closes the connections to the stores.
func (r *Running) Close() {
	if r.DB != nil {
		r.DB.Close()
	}
	if r.Redis != nil {
		r.Redis.Close()
	}
}

// client opens a connection for each request: a replica may have been restarted.
var client = &http.Client{
	Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: staysAtOrigin,
}

// staysAtOrigin refuses a redirect to another origin, which would get the headers, with their secrets, and the body.
func staysAtOrigin(to *http.Request, via []*http.Request) error {
	if from := origin(via[0].URL); origin(to.URL) != from {
		return fmt.Errorf("your service redirects to another origin than %s, which is not followed: if it runs "+
			"there, give that origin as its url", from)
	}
	if len(via) == 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// origin returns scheme, host and port of a URL, each of which must be the same for the same origin (RFC 6454).
func origin(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// SetStock sets the units of each item.
func (r *Running) SetStock(ctx context.Context, units map[int64]int64) error {
	way, where := r.Stock.way()
	for item, count := range units {
		text := fill(way.Set, item, count, "")
		if _, err := r.do(ctx, where, text, fill(way.Body, item, count, ""), false); err != nil {
			return fmt.Errorf("set the stock with %q (stock.%s.set): %w", text, where, err)
		}
	}
	return nil
}

// ReadStock reads the units of each item.
func (r *Running) ReadStock(ctx context.Context, items []int64) (map[int64]int64, error) {
	way, where := r.Stock.way()
	stock := map[int64]int64{}
	for _, item := range items {
		text := fill(way.Read, item, 0, "")
		answer, err := r.do(ctx, where, text, "", true)
		if err == nil {
			stock[item], err = strconv.ParseInt(answer, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("read the stock with %q (stock.%s.read): %w", text, where, err)
		}
	}
	return stock, nil
}

// do executes a statement of SQL, a command of Redis, or a request, and returns what it answers if that is wanted.
func (r *Running) do(ctx context.Context, where, text, body string, wanted bool) (answer string, err error) {
	switch {
	case where == "http":
		return r.request(ctx, text, body, wanted)
	case where == "redis":
		var command []any
		for word := range strings.FieldsSeq(text) {
			command = append(command, word)
		}
		reply := r.Redis.Do(ctx, command...)
		if !wanted {
			return "", reply.Err()
		}
		if answer, err = reply.Text(); errors.Is(err, redis.Nil) {
			err = errors.New("the key does not exist after stock.set")
		}
	case !wanted:
		_, err = r.DB.ExecContext(ctx, text)
	default:
		if err = r.DB.QueryRowContext(ctx, text).Scan(&answer); errors.Is(err, sql.ErrNoRows) {
			err = errors.New("it finds no row: stock.set must also add an item that is not there yet")
		}
	}
	return answer, err
}

// NewRequest returns a request to a replica about an item, some units, and the sale with a key.
func (r *Running) NewRequest(
	ctx context.Context, replica int, of Request, item, count int64, key string,
) (*http.Request, error) {
	in := func(text string) string { return fill(text, item, count, key) }
	address := r.URLs[replica%len(r.URLs)] + in(of.Path)
	request, err := http.NewRequestWithContext(ctx, of.Method, address, strings.NewReader(in(of.Body)))
	if err != nil {
		return nil, err
	}
	if of.Body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range of.Headers {
		request.Header.Set(name, in(value))
	}
	return request, nil
}

// Send sends a request, and returns the status of the answer, 0 if there is none.
func Send(request *http.Request) (status int) {
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return 0
	}
	return response.StatusCode
}

// request sends a request about the stock to the first replica.
func (r *Running) request(ctx context.Context, line, body string, wanted bool) (answer string, err error) {
	method, path, _ := strings.Cut(line, " ")
	request, err := http.NewRequestWithContext(ctx, method, r.URLs[0]+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range r.Stock.HTTP.Headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("your service answered %s%s", response.Status, excerpt(reply))
	}
	if !wanted {
		return "", nil
	}
	answer, found := field(reply, r.Stock.HTTP.Field)
	if !found {
		return "", fmt.Errorf("the answer has no field %s%s", r.Stock.HTTP.Field, excerpt(reply))
	}
	return answer, nil
}
