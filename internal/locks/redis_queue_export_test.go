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
