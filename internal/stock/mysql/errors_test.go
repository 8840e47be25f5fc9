package mysql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
)

// A rollback that the server reports is certain, even if it comes as late as COMMIT. The numbers above 8000 are TiDB's.
func TestACommitThatLostAConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1020, 1213, 8002, 8022, 9007} {
		err := classifyCommit(&mysql.MySQLError{Number: number})
		if !IsRolledBack(err) || !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%v, want rolled back and busy", err)
		}
	}
}

func TestACommitThatFailsOtherwiseIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, failed := range []error{&mysql.MySQLError{Number: 1105}, mysql.ErrInvalidConn, fmt.Errorf("broken pipe")} {
		if err := classifyCommit(failed); IsRolledBack(err) || !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%v, want unknown", err)
		}
	}
}
