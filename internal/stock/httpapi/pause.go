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

// pauses parks requests at pause points, so that a lab can replay a race between two requests. "X-Pause: after-read"
// parks a request until it is released, "X-Pause: after-read=500ms" for at most that long.
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
	SinceMS   int64       `json:"since_ms"` // time since it was parked
}

func newPauses() *pauses { return &pauses{parked: map[*parked]struct{}{}} }

// fromHeader returns the PauseFunc for an X-Pause header, or nil if there is no header. Without pause points, a header
// is refused: the client relies on the pause.
func (p *pauses) fromHeader(header, requestID string, goodsID int64) (stock.PauseFunc, error) {
	if header == "" {
		return nil, nil
	}
	if p == nil {
		return nil, describe(errMalformed, "X-Pause is %q: this replica pauses no request, see --pause-points", header)
	}
	name, limit, limited := strings.Cut(header, "=")
	point := stock.Point(name)
	if !slices.Contains(stock.Points, point) {
		return nil, describe(errMalformed, "X-Pause has the point %q: it must be one of %v", name, stock.Points)
	}
	var longest time.Duration // 0 is unlimited
	if limited {
		var err error
		if longest, err = time.ParseDuration(limit); err != nil || longest <= 0 {
			return nil, describe(errMalformed, "X-Pause has the duration %q: it must be like 500ms or 2s", limit)
		}
	}
	var passed atomic.Bool // parks once only: a strategy that retries comes to the same point again
	return func(ctx context.Context, at stock.Point) error {
		if at != point || passed.Swap(true) {
			return nil
		}
		request := &parked{
			requestID: requestID,
			point:     point,
			goodsID:   goodsID,
			since:     time.Now(),
			released:  make(chan struct{}),
		}
		return p.park(ctx, request, longest)
	}, nil
}

// park returns when the request is released or the time is over. It returns an error when ctx ends.
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

// list returns the parked requests, the longest parked first.
func (p *pauses) list() []parkedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]parkedRequest, 0, len(p.parked))
	for r := range p.parked {
		list = append(list, parkedRequest{
			RequestID: r.requestID,
			Point:     r.point,
			GoodsID:   r.goodsID,
			SinceMS:   time.Since(r.since).Milliseconds(),
		})
	}
	slices.SortFunc(list, func(a, b parkedRequest) int {
		return cmp.Or(-cmp.Compare(a.SinceMS, b.SinceMS), strings.Compare(a.RequestID, b.RequestID))
	})
	return list
}

// release lets the parked requests that match continue, and returns their number.
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

// releasedPauses is the reply to DELETE /admin/pauses.
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
		a.fail(w, r, describe(errMalformed, "the request id in the path has a malformed escape"))
		return
	}
	released := a.pauses.release(func(request *parked) bool { return request.requestID == id })
	if released == 0 {
		a.fail(w, r, describe(errNotFound, "there is no parked request %q", id))
		return
	}
	writeJSON(w, http.StatusOK, typeJSON, releasedPauses{released})
}
