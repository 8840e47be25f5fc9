package topology

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
)

// The fields are those of a topology that has been stopped: there is no tenant any more.
func TestOnlyThePasswordOfAPrivateMySQLIsShown(t *testing.T) {
	t.Parallel()
	stopped := Topology{MySQLDSN: "lab:secret@tcp(db:3306)/stock_lab", rented: true}
	if shown := stopped.ShownDSN(); shown != "lab:***@tcp(db:3306)/stock_lab" {
		t.Errorf("of the user's MySQL, %s is shown", shown)
	}
	stopped.rented = false
	if shown := stopped.ShownDSN(); shown != stopped.MySQLDSN {
		t.Errorf("of a private MySQL, %s is shown", shown)
	}
}

func TestMessagesThroughProxiesAreNotCompressed(t *testing.T) {
	t.Parallel()
	var i Isolated
	t.Cleanup(i.Close)
	at, err := i.Proxies.start(Addresses{MySQLDSN: "lab:a@b@tcp(127.0.0.1:3306)/stock_lab?compress=true&parseTime=true"})
	must.Succeed(t, err)
	config, err := mysql.ParseDSN(at.MySQLDSN)
	if err != nil || strings.Contains(at.MySQLDSN, "compress") || config.Passwd != "a@b" || !config.ParseTime {
		t.Errorf("the replica uses %s, %v", at.MySQLDSN, err)
	}
}
