package traffic

import (
	"testing"

	"go.uber.org/goleak"
)

// No test of this package may leave a goroutine: a load that was cut off leaves nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
