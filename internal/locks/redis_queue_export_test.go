package locks

import "time"

// TurnGrants is the bound of a turn.
const TurnGrants = turnGrants

// Waiting counts the callers of this process that wait for key.
func (q *RedisQueue) Waiting(key string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.waiting.Len()
	}
	return 0
}

// Deafen ends the subscription for good.
func (q *RedisQueue) Deafen() { _ = q.heard.close() }

// TakeTime lets a turn last until its tokens are used up.
func (q *RedisQueue) TakeTime() { q.turnTime = time.Hour }

// Hear lets the process hear of a grant, as its subscription does.
func (q *RedisQueue) Hear(message string) { q.hear(message) }

// Hinted says whether the process has heard of a grant, or of a broken subscription, before it knows that it waits for key.
func (q *RedisQueue) Hinted(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.cohorts[key]
	return c != nil && c.turn.hinted
}

// Process names the process.
func (q *RedisQueue) Process() string { return q.process }

// AskAll lets the process ask again, as a subscription that was broken does.
func (q *RedisQueue) AskAll() { q.askAll() }

// After is the last token that had been given out when the process was told to wait for key.
func (q *RedisQueue) After(key string) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.cohorts[key]; c != nil {
		return c.turn.after
	}
	return 0
}
