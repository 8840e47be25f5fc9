package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"stock/internal/stock"
)

func TestAWriteIsUnknownOnlyIfItMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ err, want error }{
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, stock.ErrUnavailable},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, stock.ErrUnavailable},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, stock.ErrUnknown},
		{io.EOF, stock.ErrUnknown},
	} {
		if got := classifyWrite(fmt.Errorf("wrapped: %w", test.err)); !errors.Is(got, test.want) {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
