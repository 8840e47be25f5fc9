package locks

import "time"

// TurnGrants is the most critical sections of a turn.
const TurnGrants = turnGrants

// Waiting returns how many callers of this process wait for key.
func (q *RedisQueue) Waiting(key string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.waiting.Len()
	}
	return 0
}

// Deafen ends the subscription for good.
func (q *RedisQueue) Deafen() { _ = q.messages.close() }

// TakeTime lets a turn last until its tokens are used up.
func (q *RedisQueue) TakeTime() { q.turnTime = time.Hour }

// Hear delivers a message, as the subscription does.
func (q *RedisQueue) Hear(message string) { q.onMessage(message) }

// Hinted reports whether a message came before the reply that tells the process to wait for key.
func (q *RedisQueue) Hinted(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[key]
	return c != nil && c.turn.hinted
}

// Process returns the name of the process in Redis.
func (q *RedisQueue) Process() string { return q.process }

// AskAll makes the process ask again, as it does after its subscription was broken.
func (q *RedisQueue) AskAll() { q.askAll() }

// After returns the last token that had been given out when the process was told to wait for key.
func (q *RedisQueue) After(key string) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.turn.after
	}
	return 0
}
