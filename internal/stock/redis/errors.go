package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

// IsPoolFull reports whether no connection was free in time.
func IsPoolFull(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// Refusal classifies an error after which no stock was changed.
func Refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), IsPoolFull(err):
		return fmt.Errorf("%w: Redis did not answer in time: %w", stock.ErrBusy, err)
	}
	return fmt.Errorf("%w: Redis: %w", stock.ErrUnavailable, err)
}

// classifyItemRead classifies an error of a read of one item.
func classifyItemRead(goodsID int64, err error) error {
	if isNil(err) {
		return missing(goodsID)
	}
	return Refusal(err)
}

// ClassifyItemWrite classifies an error of a command or script that writes to one item and replies nil if there is
// none.
func ClassifyItemWrite(goodsID int64, err error) error {
	if isNil(err) {
		return missing(goodsID)
	}
	return classifyWrite(err)
}

// classifyWrite classifies an error of a command that writes.
func classifyWrite(err error) error {
	dial, isNet := errors.AsType[*net.OpError](err)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, answered := errors.AsType[redis.Error](err)
	// Nothing was sent without a connection, and nothing was done if Redis refused the command.
	if err == nil || IsPoolFull(err) || answered || distrusted || isNet && dial.Op == "dial" {
		return Refusal(err)
	}
	return fmt.Errorf("%w: Redis did not reply: %w", stock.ErrUnknown, err)
}
