package mysql

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
)

// A rollback that the server reports is certain, even in the reply to COMMIT. The numbers above 8000 are TiDB's.
func TestACommitThatTheServerRolledBackIsBusy(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1020, 1213, 8002, 8022, 9007} {
		err := classifyCommit(&mysql.MySQLError{Number: number})
		if !isRolledBack(err) || !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknown) {
			t.Errorf("error %d: %v, want rolled back and busy", number, err)
		}
	}
}

func TestACommitThatFailsOtherwiseHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{&mysql.MySQLError{Number: 1105}, mysql.ErrInvalidConn, errors.New("broken pipe")} {
		if err := classifyCommit(cause); isRolledBack(err) || !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%v: %v, want outcome unknown", cause, err)
		}
	}
}

// The server rolls the statement back, and takes it again when there is room.
func TestAFullDiskMakesTheServerUnavailable(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1021, 1114} {
		err := classifyWrite(&mysql.MySQLError{Number: number})
		if !errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknown) {
			t.Errorf("error %d: %v, want unavailable", number, err)
		}
	}
	if err := classifyTogether(&mysql.MySQLError{Number: 1114}); errors.Is(err, stock.ErrUnknown) {
		t.Errorf("the ledger cannot grow: %v, want no doubt, as COMMIT inserts nothing", err)
	}
}
