// Package must has a helper for tests.
package must

import "testing"

// Succeed calls t.Fatal if err is not nil.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
