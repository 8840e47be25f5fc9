package scripts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/script"
	"stock/loadtest/internal/explore/trace"
)

func TestMain(m *testing.M) {
	script.Interpret()
	os.Exit(m.Run())
}

func TestEachScriptShowsWhatItSays(t *testing.T) {
	serverstest.Long(t)
	for engine, dir := range map[string]string{explore.MySQL: ".", explore.PostgreSQL: "postgres"} {
		least := map[string]int{explore.MySQL: 50, explore.PostgreSQL: 25}[engine]
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			x, err := explore.StartScripts(t.Context(), 2, engine)
			must.Succeed(t, err)
			t.Cleanup(x.Close)
			files, err := filepath.Glob(dir + "/*.star")
			if err != nil || len(files) < least {
				t.Fatalf("%d files, %v", len(files), err)
			}
			for _, file := range files {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".star"), func(t *testing.T) { explored(t, x, file) })
			}
		})
	}
}

// explored fails the test unless a script leads to what it expects.
func explored(t *testing.T, x *explore.Explorer, file string) {
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	s, err := explore.LoadScript(file, text, 2)
	must.Succeed(t, err)
	if s.Title == "" || s.Expect == nil {
		t.Error("it does not say what it shows, and what the result must be")
	}
	r, err := x.ExploreScript(t.Context(), s, trace.Bounds{Preemptions: 1, Faults: 1})
	if err == nil && !r.Held() { // some damage needs two
		r, err = x.ExploreScript(t.Context(), s, trace.Bounds{Preemptions: 2, Faults: 1})
	}
	must.Succeed(t, err)
	if !r.Held() || !r.Judged() {
		var b strings.Builder
		_ = r.Write(&b, true, false)
		t.Error(b.String())
	}
}
