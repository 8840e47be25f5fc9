package service_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/service"
)

// redirecting is a service that answers each request about its stock with a redirect.
const redirecting = `
url: %s
request: {path: '/buy/{item}'}
stock:
  http:
    set: PUT /stock/{item}
    read: GET /stock/{item}
    headers: {X-Api-Key: '${TOKEN}', Authorization: '${TOKEN}'}
    body: '{"stock": {count}}'
    field: stock
`

func redirect(t *testing.T, status int, to string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/moved" {
			http.Redirect(w, r, to+"/moved", status)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Api-Key") != "secret" || r.Method == http.MethodPut && string(body) != `{"stock": 5}` {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"stock": 5}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestSecretsAreNotRedirectedToAnotherOrigin(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		t.Errorf("another origin got %s %s with %v and %q", r.Method, r.URL, r.Header, body)
	}))
	t.Cleanup(stranger.Close)
	// The same host at another port, another host, and another scheme.
	for _, to := range []string{
		stranger.URL, strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1), "https" + stranger.URL[len("http"):],
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			shop := redirect(t, status, to)
			own := &service.Running{
				Description: mustRead(t, fmt.Sprintf(redirecting, shop.URL)), URLs: []string{shop.URL},
			}
			err := own.SetStock(t.Context(), map[int64]int64{1: 5})
			_, reading := own.ReadStock(t.Context(), []int64{1})
			for _, err := range []error{err, reading} {
				if want := "redirects to another origin than " + shop.URL; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%d to %s: the error is %v, want %q", status, to, err, want)
				}
			}
		}
	}
}

func TestARedirectWithinTheServiceIsFollowed(t *testing.T) {
	t.Parallel()
	shop := redirect(t, http.StatusTemporaryRedirect, "")
	own := &service.Running{Description: mustRead(t, fmt.Sprintf(redirecting, shop.URL)), URLs: []string{shop.URL}}
	must.Succeed(t, own.SetStock(t.Context(), map[int64]int64{1: 5}))
	if found, err := own.ReadStock(t.Context(), []int64{1}); err != nil || found[1] != 5 {
		t.Errorf("%v, the stock is %d, want 5", err, found[1])
	}
}

// A REPLACE would delete the row to which others refer.
func TestTheStockCanBeSetThoughOtherTablesReferToIt(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true})
	all := []*service.Description{service.Default([]string{"shop"})}
	for _, language := range []string{"java", "node", "php", "python"} {
		for _, variant := range []string{"right", "wrong"} {
			d, err := service.Read("../../examples/"+language+"/"+variant+".yaml", os.Getenv)
			must.Succeed(t, err)
			all = append(all, d)
		}
	}
	for i, d := range all {
		dsn, err := server.CreateDatabase(t.Context(), fmt.Sprint("shop", i))
		must.Succeed(t, err)
		db, err := sql.Open("mysql", dsn)
		must.Succeed(t, err)
		t.Cleanup(func() { db.Close() })
		must.Succeed(t, d.SetUp(t.Context(), db, nil))
		own := &service.Running{Description: d, DB: db}
		must.Succeed(t, own.SetStock(t.Context(), map[int64]int64{1: 5}))
		table, _, _ := strings.Cut(strings.Fields(d.SetupSQL)[2], "(")
		key := map[string]string{"products": "id", "good_stock": "goods_id"}[table]
		for _, statement := range []string{
			fmt.Sprintf("CREATE TABLE sale (item BIGINT, FOREIGN KEY (item) REFERENCES %s (%s))", table, key),
			"INSERT INTO sale VALUES (1)",
		} {
			_, err := db.ExecContext(t.Context(), statement)
			must.Succeed(t, err)
		}
		if err := own.SetStock(t.Context(), map[int64]int64{1: 3}); err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		if found, err := own.ReadStock(t.Context(), []int64{1}); err != nil || found[1] != 3 {
			t.Errorf("%s: %v, the stock is %d, want 3", d.Name, err, found[1])
		}
	}
}
