package topology

import (
	"slices"
	"testing"
)

func TestReplicasDivideTheConnectionsOfMySQL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		free, replicas int
		want           []string // nil: the defaults
		fits           bool
	}{
		{520, 8, nil, true},
		{519, 8, []string{"--mysql-conns=32", "--mysql-lock-conns=31"}, true},
		{142, 3, []string{"--mysql-conns=32", "--mysql-lock-conns=14"}, true},
		{142, 8, []string{"--mysql-conns=4", "--mysql-lock-conns=12"}, true},
		{136, 8, []string{"--mysql-conns=4", "--mysql-lock-conns=12"}, true},
		{135, 8, nil, false},
		{-3, 1, nil, false},
	} {
		got, err := connectionArgs(test.free, test.replicas)
		if (err == nil) != test.fits || !slices.Equal(got, test.want) {
			t.Errorf("%d connections for %d replicas: %v, %v, want %v", test.free, test.replicas, got, err, test.want)
		}
	}
}
