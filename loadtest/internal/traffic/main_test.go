package traffic

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind, not even one that cuts off its load.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
