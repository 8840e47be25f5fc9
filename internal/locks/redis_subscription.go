package locks

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// subscription receives the messages of one channel, over one connection for all waiters of a process. It is opened
// when the first of them has to wait, and then stays open. Redis does not keep messages for a client that is not
// connected: a message is a hint to ask again at once, and must never be the only reason to ask.
type subscription struct {
	client     redis.UniversalClient
	channel    string
	onMessage  func(message string)
	subscribed func() // called at first and after each broken connection: messages may have been missed

	mu     sync.Mutex
	pubsub *redis.PubSub
	closed bool
	done   chan struct{}
}

func newSubscription(
	client redis.UniversalClient, channel string, onMessage func(string), subscribed func(),
) *subscription {
	return &subscription{
		client: client, channel: channel, onMessage: onMessage, subscribed: subscribed, done: make(chan struct{}),
	}
}

// start subscribes, unless that has been done. It does not block.
func (s *subscription) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pubsub != nil || s.closed {
		return
	}
	// go-redis ends the subscription with this context, so it must outlive the waiter.
	s.pubsub = s.client.Subscribe(context.Background())
	events := s.pubsub.ChannelWithSubscriptions()
	go func() {
		defer close(s.done)
		// This dials, which may take a while. If it fails, go-redis dials again for the channel of events.
		_ = s.pubsub.Subscribe(context.Background(), s.channel)
		for event := range events {
			switch event := event.(type) {
			case *redis.Message:
				s.onMessage(event.Payload)
			case *redis.Subscription:
				s.subscribed()
			}
		}
	}()
}

// close ends the subscription and waits until its callbacks have returned.
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
