package sequence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/sequence"
	"stock/loadtest/internal/service"
)

const described = `
command: /usr/bin/python3 %[1]s/keys.py %[2]s
setup: %[1]s/keys.sql
request: {path: '/items/{item}/buy', body: '{"quantity": {count}}'}
idempotency_header: Idempotency-Key
key_reused: true
cancel: {path: '/sales/{key}/cancel'}
stock:
  sql:
    set: INSERT INTO products (id, quantity) VALUES ({item}, {count}) ON DUPLICATE KEY UPDATE quantity = {count}
    read: SELECT quantity FROM products WHERE id = {item}
`

func TestAServiceThatBreaksItsKeysIsShownWithCurl(t *testing.T) {
	serverstest.Long(t)
	serverstest.NeedService(t, "python")
	t.Parallel()
	here, err := filepath.Abs("testdata")
	must.Succeed(t, err)
	for flaw, wrong := range map[string]string{
		"right":                "",
		"sells-for-a-used-key": `answer "sold", want "refused" or "sold out": `,
		"forgets-refusals":     `answer "sold", want `,
		"cancels-twice":        `stock of `,
	} {
		t.Run(flaw, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), flaw+".yaml")
			must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, described, here, flaw), 0o600))
			d, err := service.Read(file, os.Getenv)
			must.Succeed(t, err)
			l, err := lab.StartService(t.Context(), d, 2, lab.Place{})
			must.Succeed(t, err)
			defer l.Close()
			found, err := sequence.PlayOwn(t.Context(), l.Target.Own, time.Minute, sequence.Options{Each: 12, Seed: 1})
			must.Succeed(t, err)
			if (found.Wrong == "") != (wrong == "") || !strings.HasPrefix(found.Wrong, wrong) {
				t.Errorf("%s\n%s, want %s", found.Sequence, found.Wrong, wrong)
			}
			if requests := strings.Count(found.Sequence, "\n"); requests > 6 || len(found.Curl) != requests {
				t.Errorf("it is shown by %d requests:\n%s\n%v", requests, found.Sequence, found.Curl)
			}
		})
	}
}
