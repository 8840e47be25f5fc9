// Package must ends tests.
package must

import "testing"

// Succeed ends the test if what it needs has failed.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
