package servers_test

import (
	"context"
	"os"
"testing"
"time"

	"stock/internal/servers"
)

func TestGalera(t *testing.T) {
	b := time.Now()
	g, err := servers.StartGalera(t.Context(), servers.GaleraOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Log(g.Version, time.Since(b))
	b = time.Now()
	if err := g.Restart(t.Context(), g.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(b))
	tail, _ := os.ReadFile(g.Nodes[0].Log)
	os.WriteFile("/tmp/gal/n0.log", tail, 0o600)
}
