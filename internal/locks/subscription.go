package locks

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// subscription is one connection that hears of releases, for all waiters of a process. It is made when the first of them
// has to wait, and then stays. Redis keeps no message for whom it is not connected to: what is heard is a hint to look
// again at once, never the only reason to look.
type subscription struct {
	client  redis.UniversalClient
	channel string
	heard   func(message string)
	again   func() // subscribed, for the first time or after a broken connection: messages may have been missed

	mu     sync.Mutex
	pubsub *redis.PubSub
	closed bool
	done   chan struct{}
}

func newSubscription(client redis.UniversalClient, channel string, heard func(message string), again func()) *subscription {
	return &subscription{client: client, channel: channel, heard: heard, again: again, done: make(chan struct{})}
}

// start subscribes, unless that has been done. It does not wait: again says when messages can be relied on.
func (s *subscription) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pubsub != nil || s.closed {
		return
	}
	// The background, for go-redis ties the whole subscription to the context of its beginning.
	s.pubsub = s.client.Subscribe(context.Background())
	events := s.pubsub.ChannelWithSubscriptions()
	go func() {
		defer close(s.done)
		// Dialling may take its time, which no waiter should spend. Where it fails, the channel above dials again.
		_ = s.pubsub.Subscribe(context.Background(), s.channel)
		for event := range events {
			switch event := event.(type) {
			case *redis.Message:
				s.heard(event.Payload)
			case *redis.Subscription:
				s.again()
			}
		}
	}()
}

// close ends the subscription and waits until nothing more is heard.
func (s *subscription) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.pubsub == nil {
		return nil
	}
	err := s.pubsub.Close()
	<-s.done
	return err
}
