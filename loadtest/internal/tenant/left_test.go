package tenant_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
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

func TestAnInterruptedCreationSaysWhatItCouldNotRemove(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	admin, dsn := labDSN(t, server, "left_lab", "")
	execute(t, admin, "REVOKE DROP ON left_lab.* FROM left_lab@'127.0.0.1'")
	proxy := tcpproxy.New(t, server.Addr)
	create := proxy.Catch(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte("CREATE DATABASE")) })
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-create.Arrived()
		interrupt()
		create.Release()
	}()
	dsn = strings.Replace(dsn, server.Addr, proxy.Addr(), 1)
	_, err := tenant.CreateDatabase(ctx, dsn, oracle.Account{}, "left_lab")
	left := tenant.Left(err)
	if left == nil || !strings.Contains(left.Error(), "database left_lab") {
		t.Errorf("got %v, of which %v is left; want the database", err, left)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}
