package redis

import "testing"

func TestARecordThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "fp", "fp nothing", "fp done 1 1 9 0 x y z 0", "fp done 1 1 9 0 / x"} {
		if _, _, err := check(text, "key", nil); err == nil {
			t.Errorf("%q is taken for a record", text)
		}
	}
}
