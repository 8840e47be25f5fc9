package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"stock/loadtest/internal/tenant"
)

func TestLeftFindsEveryErrorOfARemoval(t *testing.T) {
	t.Parallel()
	ofMySQL, ofRedis := tenant.AsLeft(errors.New("a database")), tenant.AsLeft(errors.New("keys"))
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{context.Canceled, ""},
		{errors.Join(context.Canceled, errors.New("nginx: killed"), tenant.AsLeft(nil)), ""},
		{fmt.Errorf("start the lab: %w", ofMySQL), "a database"},
		{errors.Join(fmt.Errorf("start the lab: %w", errors.Join(context.Canceled, ofMySQL)), ofRedis), "a database\nkeys"},
	} {
		got := ""
		if left := tenant.Left(test.err); left != nil {
			got = left.Error()
		}
		if got != test.want {
			t.Errorf("of %v, %q is left, want %q", test.err, got, test.want)
		}
	}
}
