package locks

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// What the locks that belong to a session share: Etcd and ZooKeeper.

// errSessionOver means that a waiter lost its place in the queue because its session ended.
var errSessionOver = errors.New("the session has ended")

// answerLimit bounds a request that a lock service should answer at once. Exceeding it is an error of the service, not
// the end of the caller's context.
const answerLimit = 2 * time.Second

// withAnswerLimit makes a request within ctx and answerLimit.
func withAnswerLimit[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	reply, err := request(limited)
	if err != nil && ended(limited) != nil && ended(ctx) == nil {
		err = fmt.Errorf("no answer within %v", answerLimit)
	}
	return reply, err
}

// nodeName encodes a key as one element of a path. Different keys have different names.
func nodeName(key string) string {
	if key == "" {
		return "%"
	}
	return strings.ReplaceAll(url.PathEscape(key), ".", "%2E")
}
