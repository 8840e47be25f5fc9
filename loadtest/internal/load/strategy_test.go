package load

import (
	"strings"
	"testing"

	"stock/internal/must"
)

var catalogue = []Strategy{
	{Name: "noop", Stores: []string{"none"}, Claim: Claim{OneReplica: "sells-nothing", TwoReplicas: "sells-nothing"}},
	{Name: "mutex", Stores: []string{"mysql"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "loses-updates"}},
	{Name: "update", Stores: []string{"mysql"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "correct"}},
	{Name: "lock", Stores: []string{"mysql", "redis"}, Claim: Claim{OneReplica: "correct", TwoReplicas: "correct"}},
	{
		Name: "redlock", Stores: []string{"mysql", "redis"},
		Unavailable: map[string]string{"mysql": "no masters", "redis": "no masters"},
	},
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		names   []string
		store   string
		want    string // name:store
		leftOut int
		err     string
	}{
		{name: "all", want: "noop:none mutex:mysql update:mysql lock:mysql", leftOut: 1},
		{name: "by name, with the baseline", names: []string{"update"}, want: "noop:none update:mysql"},
		{name: "on Redis", store: "redis", want: "noop:none lock:redis", leftOut: 3},
		{
			name: "mistyped", names: []string{"updaet"},
			err: `no strategy is named "updaet": did you mean "update"?`,
		},
		{
			name: "unknown", names: []string{"hope"},
			err: `no strategy is named "hope"; the names are noop, mutex, update, lock, redlock`,
		},
		{
			name: "named, not available", names: []string{"redlock"},
			err: "strategy redlock cannot run here: no masters",
		},
		{
			name: "named, wrong store", names: []string{"mutex"}, store: "redis",
			err: "strategy mutex cannot run here: it works on mysql, not on redis",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			choices, leftOut, err := Choose(catalogue, test.names, test.store)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %s", err, test.err)
				}
				return
			}
			must.Succeed(t, err)
			var got []string
			for _, c := range choices {
				got = append(got, c.Strategy.Name+":"+c.Store)
			}
			if strings.Join(got, " ") != test.want || len(leftOut) != test.leftOut {
				t.Errorf("chosen %v, left out %v: want %s, and %d left out", got, leftOut, test.want, test.leftOut)
			}
		})
	}
}
