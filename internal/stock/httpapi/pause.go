package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// pauses parks requests at pause points, so that a lab can replay a race with two requests. A request asks for it with
// a header: "X-Pause: after-read" parks it until it is released, "X-Pause: after-read=500ms" for at most that long.
type pauses struct {
	mu     sync.Mutex
	parked map[*parked]struct{}
}

type parked struct {
	requestID string
	point     stock.Point
	goodsID   int64
	since     time.Time
	released  chan struct{}
}

// parkedRequest is a row of GET /admin/pauses.
type parkedRequest struct {
	RequestID string      `json:"request_id"`
	Point     stock.Point `json:"point"`
	GoodsID   int64       `json:"goods_id"`
	SinceMS   int64       `json:"since_ms"` // how long it has been parked
}

func newPauses() *pauses { return &pauses{parked: map[*parked]struct{}{}} }

// fromHeader makes the PauseFunc that an X-Pause header asks for; nil where there is no header.
func (p *pauses) fromHeader(header, requestID string, goodsID int64) (stock.PauseFunc, error) {
	if header == "" {
		return nil, nil
	}
	name, limit, limited := strings.Cut(header, "=")
	point := stock.Point(name)
	if !slices.Contains(stock.Points, point) {
		return nil, describe(errMalformed, "X-Pause names %q: the points are %v", name, stock.Points)
	}
	var longest time.Duration // 0: until released
	if limited {
		var err error
		if longest, err = time.ParseDuration(limit); err != nil || longest <= 0 {
			return nil, describe(errMalformed, "X-Pause has the time %q: it must be like 500ms or 2s", limit)
		}
	}
	var passed atomic.Bool // a strategy that retries passes its points again, and is parked the first time only
	return func(ctx context.Context, at stock.Point) error {
		if at != point || passed.Swap(true) {
			return nil
		}
		return p.park(ctx, &parked{requestID, point, goodsID, time.Now(), make(chan struct{})}, longest)
	}, nil
}

// park returns when the request is released, when its time is over, or with an error when its context ends.
func (p *pauses) park(ctx context.Context, request *parked, longest time.Duration) error {
	p.mu.Lock()
	p.parked[request] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.parked, request)
		p.mu.Unlock()
	}()

	var over <-chan time.Time
	if longest > 0 {
		timer := time.NewTimer(longest)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-request.released:
		return nil
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// list has the request that was parked first at the top.
func (p *pauses) list() []parkedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]parkedRequest, 0, len(p.parked))
	for r := range p.parked {
		list = append(list, parkedRequest{r.requestID, r.point, r.goodsID, time.Since(r.since).Milliseconds()})
	}
	slices.SortFunc(list, func(a, b parkedRequest) int {
		return cmp.Or(-cmp.Compare(a.SinceMS, b.SinceMS), strings.Compare(a.RequestID, b.RequestID))
	})
	return list
}

// release lets the parked requests that match go on, and says how many they are.
func (p *pauses) release(match func(*parked) bool) (released int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for request := range p.parked {
		if match(request) {
			delete(p.parked, request)
			close(request.released)
			released++
		}
	}
	return released
}

func (a *API) getPauses(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, typeJSON, a.pauses.list())
}

// releasedPauses is the reply to DELETE.
type releasedPauses struct {
	Released int `json:"released"`
}

func (a *API) deletePauses(w http.ResponseWriter, _ *http.Request) {
	released := a.pauses.release(func(*parked) bool { return true })
	writeJSON(w, http.StatusOK, typeJSON, releasedPauses{released})
}

func (a *API) deletePause(w http.ResponseWriter, r *http.Request) {
	id, err := url.PathUnescape(chi.URLParam(r, "request_id"))
	if err != nil {
		a.fail(w, r, describe(errMalformed, "the request id in the path is not well escaped"))
		return
	}
	released := a.pauses.release(func(request *parked) bool { return request.requestID == id })
	if released == 0 {
		a.fail(w, r, describe(errNotFound, "no request with id %q is parked", id))
		return
	}
	writeJSON(w, http.StatusOK, typeJSON, releasedPauses{released})
}
