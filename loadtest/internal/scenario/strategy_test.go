package scenario

import (
	"strings"
	"testing"
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
		{"all", nil, "", "noop:none mutex:mysql update:mysql lock:mysql", 1, ""},
		{"by name, with the baseline", []string{"update"}, "", "noop:none update:mysql", 0, ""},
		{"on Redis", nil, "redis", "noop:none lock:redis", 3, ""},
		{
			"unknown", []string{"updaet"}, "", "", 0,
			`no strategy is named "updaet"; the names are noop, mutex, update, lock, redlock`,
		},
		{"named, not available", []string{"redlock"}, "", "", 0, "strategy redlock cannot run here: no masters"},
		{
			"named, wrong store", []string{"mutex"}, "redis", "", 0,
			"strategy mutex cannot run here: it works on mysql, not on redis",
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
			if err != nil {
				t.Fatal(err)
			}
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
