package stock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// What a server says of a transaction that it has rolled back is certain, as late as COMMIT. The numbers above 8000 are TiDB's.
func TestACommitThatLostAConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1020, 1213, 8002, 8022, 9007} {
		err := committed(&mysql.MySQLError{Number: number})
		if !undone(err) || !errors.Is(err, ErrBusy) || errors.Is(err, ErrUnknown) {
			t.Errorf("%v, want that the transaction was undone, and busy", err)
		}
	}
}

func TestACommitThatFailsOtherwiseIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, failed := range []error{&mysql.MySQLError{Number: 1105}, mysql.ErrInvalidConn, fmt.Errorf("broken pipe")} {
		if err := committed(failed); undone(err) || !errors.Is(err, ErrUnknown) {
			t.Errorf("%v, want unknown", err)
		}
	}
}
