package traffic

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"stock/loadtest/internal/history"
)

const reservationsPath = "/stock/reservations"

// callHeader is the header of a request about reservations, up to its id.
func (r *run) callHeader(c history.Call) []byte {
	server := r.users[0].connection.server
	path := reservationsPath + "/" + c.Reservation
	query := r.callQuery()
	switch c.Kind {
	case history.Hold:
		return server.header(http.MethodPost, reservationsPath)
	case history.Confirm:
		return server.header(http.MethodPost, path+"/confirm"+query)
	case history.Cancel:
		return server.header(http.MethodDelete, path+query)
	}
	return server.header(http.MethodGet, path+query)
}

// callQuery names the strategy and the store of a request without a body.
func (r *run) callQuery() string {
	query := url.Values{}
	if r.load.Strategy != "" {
		query.Set("strategy", r.load.Strategy)
	}
	if r.load.Store != "" {
		query.Set("store", r.load.Store)
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// callReply has the members of every reply but those that replyReader reads: of a reservation, of a cancelled sale, of
// the receipt of an order, and of a problem. In a problem, the lines are numbers, which are not read.
type callReply struct {
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Key       string    `json:"key"`
	State     string    `json:"state"`
	GoodsID   int64     `json:"goods_id"` // of a problem with an order: the item because of which it was refused
	Count     int64     `json:"count"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	EndedAt   time.Time `json:"ended_at"`
	Remaining *int64    `json:"remaining"`
	Lines     []struct {
		GoodsID   int64  `json:"goods_id"`
		Count     int64  `json:"count"`
		Remaining *int64 `json:"remaining"`
		Token     uint64 `json:"token"`
		Cancelled int64  `json:"cancelled"`
		GivenBack int64  `json:"given_back"`
	} `json:"lines"`
	Attempts  int   `json:"attempts"`
	WaitedUS  int64 `json:"waited_us"`
	HeldUS    int64 `json:"held_us"`
	EnteredNS int64 `json:"entered_ns"`
	LeftNS    int64 `json:"left_ns"`
}

// refusals are the problem types that tell why a reservation stays as it is.
var refusals = []string{
	history.ProblemExpired, history.ProblemCancelled, history.ProblemConfirmed, history.ProblemUnknownHold,
}

// readCall records the answer to a request about reservations.
func readCall(c *history.Call, response *fasthttp.Response) {
	c.Replica = string(response.Header.Peek("X-Replica"))
	c.RequestID = string(response.Header.Peek("X-Request-Id"))
	c.Replayed = string(response.Header.Peek("Idempotency-Replayed")) == "true"
	var reply callReply
	unreadable := json.Unmarshal(response.Body(), &reply) != nil
	if c.Status == http.StatusOK || c.Status == http.StatusCreated {
		if unreadable || !reply.answers(*c) {
			c.Outcome, c.Error = history.Unknown, history.Mismatch
			return
		}
		c.Outcome, c.Reservation, c.State, c.Remaining = history.Done, reply.ID, reply.State, reply.Remaining
		c.CreatedUS, c.ExpiresUS = reply.CreatedAt.UnixMicro(), reply.ExpiresAt.UnixMicro()
		if !reply.EndedAt.IsZero() {
			c.EndedUS = reply.EndedAt.UnixMicro()
		}
		return
	}
	c.Error = reply.Type
	switch {
	case c.Kind == history.Hold && reply.Type == problemSoldOut:
		c.Outcome, c.Remaining = history.SoldOut, reply.Remaining
	case slices.Contains(refusals, reply.Type):
		c.Outcome = history.Refused
	default:
		c.Outcome = classifyFailure(c.Status, reply.Type)
	}
	c.Error = cmp.Or(c.Error, http.StatusText(c.Status))
}

// answers reports whether a reply is for what was asked.
func (r callReply) answers(c history.Call) bool {
	known := []string{history.Held, history.Confirmed, history.Cancelled, history.Expired}
	sameID := c.Kind == history.Hold || r.ID == c.Reservation
	return r.ID != "" && sameID && r.GoodsID == c.GoodsID && r.Count == c.Count && slices.Contains(known, r.State) &&
		!r.CreatedAt.IsZero() && !r.ExpiresAt.IsZero()
}
