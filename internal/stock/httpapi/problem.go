package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// Errors in a request that are found before package stock sees it.
var (
	errMalformed = errors.New("malformed request")
	errTooLarge  = errors.New("body too large")
	errMediaType = errors.New("unsupported media type")
	errNotFound  = errors.New("not found")
	errMethod    = errors.New("method not allowed")

	// On the admin listener.
	errMisdirected = errors.New("misdirected request")
	errOtherPage   = errors.New("sent by another page")
)

// errInternal stands for all errors that have no row in kinds.
var errInternal = errors.New("internal error")

// kind maps an error to a reply.
type kind struct {
	err        error // matched by errors.Is
	slug       string
	status     int
	title      string
	detail     string // for clients, unless the error has a detail of its own
	retryAfter string // seconds; empty if the client should not simply send the request again
}

func (k *kind) is(err error) bool { return errors.Is(k.err, err) }

// kinds is searched from the top, so an error that joins several causes is the first of them. The unknown outcome comes
// first, because the refusals below it promise that nothing was deducted. An error that matches no row gets the last
// row, which promises nothing.
var kinds = []kind{{
	err: stock.ErrUnknown, slug: "outcome-unknown", status: http.StatusInternalServerError, title: "Outcome unknown",
	detail: "The deduction was sent, but no result arrived: units may or may not have been deducted. Send the request " +
		"again with its Idempotency-Key, or read the stock before you try again without one.",
}, {
	err: stock.ErrSoldOut, slug: "sold-out", status: http.StatusConflict, title: "Sold out",
	detail: "Fewer units are left than were requested; nothing was deducted.",
}, {
	err: stock.ErrUnknownItem, slug: "unknown-goods", status: http.StatusNotFound, title: "Unknown item",
	detail: "No item has this goods_id in this store.",
}, {
	err: stock.ErrBusy, slug: "busy", status: http.StatusServiceUnavailable, title: "Busy", retryAfter: "1",
	detail: "The strategy gave up waiting for a lock, a retry or a connection; nothing was deducted. Try again later.",
}, {
	err: stock.ErrUnavailable, slug: "unavailable", status: http.StatusServiceUnavailable, title: "Unavailable",
	retryAfter: "1",
	detail:     "A server that the strategy needs does not answer; nothing was deducted. Try again later.",
}, {
	err: stock.ErrOverstocked, slug: "overstocked", status: http.StatusConflict, title: "Overstocked",
	detail: "With these units the stock would exceed 9007199254740991; nothing was added.",
}, {
	err: stock.ErrUnknownStrategy, slug: "unknown-strategy", status: http.StatusNotFound, title: "Unknown strategy",
	detail: "No strategy has this name; GET /strategies lists them.",
}, {
	err: stock.ErrUnsupportedStore, slug: "unsupported-store", status: http.StatusBadRequest, title: "Unsupported store",
	detail: "The store does not exist, or the strategy does not work on it; GET /strategies lists the stores of each.",
}, {
	err: stock.ErrKeyUnsupported, slug: "idempotency-key-unsupported", status: http.StatusBadRequest,
	title: "Idempotency-Key not supported",
	detail: "The strategy is not idempotent, so that a repeated request would deduct again; " +
		"GET /strategies lists those that are. Nothing was deducted.",
}, {
	err: stock.ErrKeyReused, slug: "idempotency-key-reused", status: http.StatusUnprocessableEntity,
	title: "Idempotency-Key used for another request",
	detail: "The Idempotency-Key was used for a request with other items, counts, ttl_ms or store. " +
		"Nothing was deducted. Find that request before you use a new key.",
}, {
	err: stock.ErrInProgress, slug: "in-progress", status: http.StatusConflict, title: "In progress", retryAfter: "1",
	detail: "The first request with this Idempotency-Key has not ended and may still deduct; this one has not deducted. " +
		"Send it again later for the result.",
}, {
	err: stock.ErrCancelled, slug: "cancelled", status: http.StatusConflict, title: "Cancelled",
	detail: "The request was cancelled by its Idempotency-Key: nothing is sold or held for it. " +
		"A new request needs a new key.",
}, {
	err: stock.ErrUnknownSale, slug: "unknown-sale", status: http.StatusNotFound, title: "Unknown sale",
	detail: "Nothing is known of this Idempotency-Key; an old one may have expired or been pruned. " +
		"Name the strategy and the store that sold, if they are not the default.",
}, {
	err: stock.ErrMoreThanSold, slug: "more-than-sold", status: http.StatusUnprocessableEntity,
	title: "More than was sold",
	detail: "More units were to be cancelled than were sold; nothing was cancelled. " +
		"GET /stock/sales/{key} tells what was sold.",
}, {
	err: stock.ErrNoOrders, slug: "no-orders", status: http.StatusBadRequest, title: "No orders",
	detail: "The strategy takes no orders, or none on this store; " +
		"GET /strategies lists the stores on which it does.",
}, {
	err: stock.ErrUnknownReservation, slug: "unknown-reservation", status: http.StatusNotFound,
	title:  "Unknown reservation",
	detail: "There is no reservation with this id; an old one may have been pruned.",
}, {
	err: stock.ErrReservationExpired, slug: "reservation-expired", status: http.StatusConflict,
	title:  "Reservation expired",
	detail: "The time of the reservation passed before it was confirmed; its units go back into the stock.",
}, {
	err: stock.ErrReservationCancelled, slug: "reservation-cancelled", status: http.StatusConflict,
	title:  "Reservation cancelled",
	detail: "The reservation was cancelled; its units are back in the stock.",
}, {
	err: stock.ErrReservationConfirmed, slug: "reservation-confirmed", status: http.StatusConflict,
	title:  "Reservation confirmed",
	detail: "The reservation was confirmed: its units are sold, and it cannot be cancelled.",
}, {
	err: stock.ErrNoReservations, slug: "no-reservations", status: http.StatusBadRequest, title: "No reservations",
	detail: "The strategy takes no reservations; GET /strategies lists those that do.",
}, {
	err: errMalformed, slug: "malformed", status: http.StatusBadRequest, title: "Malformed request",
	detail: "The request cannot be understood or exceeds a limit.",
}, {
	err: stock.ErrItemNotNamed, slug: "malformed", status: http.StatusBadRequest, title: "Malformed request",
	detail: "goods_id is missing: a Redis Cluster keeps the key beside the item.",
}, {
	err: errTooLarge, slug: "too-large", status: http.StatusRequestEntityTooLarge, title: "Body too large",
	detail: "A body may have up to 4096 bytes, or 16384 for an order.",
}, {
	err: errMediaType, slug: "unsupported-media-type", status: http.StatusUnsupportedMediaType,
	title:  "Unsupported media type",
	detail: "A body must be application/json, without a Content-Encoding.",
}, {
	err: errNotFound, slug: "not-found", status: http.StatusNotFound, title: "Not found",
	detail: "There is nothing at this path.",
}, {
	err: errMethod, slug: "method-not-allowed", status: http.StatusMethodNotAllowed, title: "Method not allowed",
	detail: "The path does not support this method; the Allow header lists those that it supports.",
}, {
	err: errMisdirected, slug: "misdirected", status: http.StatusMisdirectedRequest, title: "Misdirected request",
	detail: "The admin listener has no such name; --admin-names adds one.",
}, {
	err: errOtherPage, slug: "other-page", status: http.StatusForbidden, title: "Sent by another page",
	detail: "The admin listener takes no requests that other pages make a browser send.",
}, {
	err: errInternal, slug: "internal", status: http.StatusInternalServerError, title: "Internal error",
	detail: "The service failed unexpectedly. Its log has the cause under this request id.",
}}

// kindOf returns the row of an error.
func kindOf(err error) *kind {
	for i := range kinds {
		if errors.Is(err, kinds[i].err) {
			return &kinds[i]
		}
	}
	return &kinds[len(kinds)-1]
}

// described is an error with what clients may know about it. The text of the error itself is only logged.
type described struct {
	error
	detail  string // empty for that of the kind
	goodsID int64  // the item for which an order was refused, or 0
	lines   []int  // its lines in the client's order, counted from 0
}

func (e *described) Unwrap() error { return e.error }

func describe(err error, format string, args ...any) error {
	return &described{error: err, detail: fmt.Sprintf(format, args...)}
}

// onLines names the lines of an order that caused an error.
func onLines(err error, goodsID int64, lines ...int) error {
	d, ok := errors.AsType[*described](err)
	if !ok {
		d = &described{}
	}
	return &described{error: err, detail: d.detail, goodsID: max(goodsID, 0), lines: lines}
}

// details say what some errors mean for one operation. %v stands for the text of the error.
type details map[error]string

func (d details) describe(err error) error {
	detail, ok := d[kindOf(err).err]
	if !ok {
		return err
	}
	return describe(err, "%s", strings.Replace(detail, "%v", err.Error(), 1))
}

// problem is the body of an error reply: RFC 9457, with extension members.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	RequestID  string   `json:"request_id"`
	Remaining  *int64   `json:"remaining,omitempty"`  // sold-out: units left
	GoodsID    int64    `json:"goods_id,omitempty"`   // orders: the item that caused the refusal
	Lines      []int    `json:"lines,omitempty"`      // orders: its lines, counted from 0
	Strategies []string `json:"strategies,omitempty"` // unknown-strategy: those that exist
}

// fail answers with the problem for an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	k := kindOf(err)
	p := problem{
		Type:      "/problems/" + k.slug,
		Title:     k.title,
		Status:    k.status,
		Detail:    k.detail,
		RequestID: requestID(w),
	}
	if d, ok := errors.AsType[*described](err); ok {
		p.Detail = cmp.Or(d.detail, k.detail)
		p.GoodsID, p.Lines = d.goodsID, d.lines
	}
	switch {
	case k.is(stock.ErrBusy):
		if errors.Is(err, stock.ErrFenced) {
			p.Detail = "A later holder of the lock has sold units of the item; nothing was deducted. " +
				"Try again later. " +
				"If this happens to every request, the lock service has lost its data: " +
				"set the stock anew (PUT /admin/stock/{goods_id})."
		}
	case k.is(stock.ErrSoldOut):
		if soldOut, ok := errors.AsType[*stock.SoldOutError](err); ok {
			p.Detail = soldOut.Error()
			p.Remaining = &soldOut.Remaining
		}
	case k.is(stock.ErrUnknownStrategy):
		p.Strategies = a.names
	}
	if k.retryAfter != "" {
		w.Header().Set("Retry-After", k.retryAfter)
	}
	a.metrics.problems.WithLabelValues(k.slug).Inc()
	a.logFailure(r.Context(), k, p.RequestID, err)
	writeJSON(w, k.status, typeProblem, &p)
}

// Refuse returns the whole reply to a request that net/http refuses without calling a handler, such as one with a
// control character in a header.
func (a *API) Refuse(status int, reason string) []byte {
	k := kindOf(errMalformed)
	p := problem{
		Type:      "/problems/" + k.slug,
		Title:     k.title,
		Status:    status,
		Detail:    "the request is malformed HTTP or exceeds a limit (" + reason + "); nothing was deducted",
		RequestID: rand.Text(),
	}
	a.metrics.problems.WithLabelValues(k.slug).Inc()
	a.logFailure(context.Background(), k, p.RequestID, errors.New(reason))
	body, err := json.Marshal(&p)
	if err != nil {
		panic(err) // a problem can be encoded
	}
	body = append(body, '\n') // as in every other reply
	response := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{
			"Content-Type": typeProblem, "X-Content-Type-Options": noSniff, "Cache-Control": noStore,
			"X-Request-Id": {p.RequestID}, "X-Replica": a.replica, "X-Strategy": {a.DefaultStrategy},
		},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	var reply bytes.Buffer
	_ = response.Write(&reply) // to memory
	return reply.Bytes()
}

// Internal errors are always logged as errors. Refusals, and other errors after the client went away, are not logged.
// If a server is down or a lock service has lost its data, every request may fail: of these refusals, at most one per
// second is logged as a warning.
func (a *API) logFailure(ctx context.Context, k *kind, id string, err error) {
	level := slog.LevelWarn
	switch {
	case k.is(errInternal):
		level = slog.LevelError
	case ctx.Err() != nil:
		return
	case k.is(stock.ErrUnknown):
	case k.is(stock.ErrUnavailable), errors.Is(err, stock.ErrFenced):
		now := time.Now().Unix()
		if next := a.nextWarned.Load(); now < next || !a.nextWarned.CompareAndSwap(next, now+1) {
			return
		}
	default:
		return
	}
	a.Log.LogAttrs(ctx, level, k.title, slog.String("request_id", id), slog.Any("err", err))
}

// problem answers GET /problems/{slug}, the URL of a problem type.
func (c *call) problem() (any, error) {
	slug := chi.URLParam(c.r, "slug")
	for _, k := range kinds {
		if k.slug == slug {
			return struct {
				Type        string `json:"type"`
				Title       string `json:"title"`
				Status      int    `json:"status"`
				Description string `json:"description"`
			}{"/problems/" + slug, k.title, k.status, k.detail}, nil
		}
	}
	return nil, describe(errNotFound, "there is no problem type %q", slug)
}
