package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"stock/internal/stock/httpapi"
)

// serveHTTP serves both listeners until ctx ends, and then drains. The admin listener is closed last, so that the drain
// can be watched there.
func (o *serveOptions) serveHTTP(ctx context.Context, api *httpapi.API) error {
	base, cancelRequests := context.WithCancelCause(context.Background())
	defer cancelRequests(nil)
	failed := make(chan error, 2)

	public := o.publicServer(api.Public(), api.Refuse)
	public.BaseContext = func(net.Listener) context.Context { return base }
	url, err := public.start(o.listen, failed)
	if err != nil {
		return fmt.Errorf("listen for requests (--listen): %w", err)
	}
	defer public.Close()
	attrs := []any{slog.String("url", url)}

	admin := o.newServer(api.Admin(), api.Refuse) // without a write timeout: a profile takes as long as the client asks
	if o.adminListen != "" {
		url, err := admin.start(o.adminListen, failed)
		if err != nil {
			return fmt.Errorf("listen for administration (--admin-listen): %w", err)
		}
		defer admin.Close()
		attrs = append(attrs, slog.String("admin_url", url))
	}
	o.Log.Info("serving", attrs...)

	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	o.Log.Info("shutting down: finishing the requests in progress", slog.Duration("at_most", o.drainLimit))
	api.Drain()
	if o.drainDelay > 0 {
		public.closing.Store(true)
		time.Sleep(o.drainDelay)
	}
	err = o.drain(public, cancelRequests)
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = admin.Shutdown(last) // does not wait for a long profile
	o.Log.Info("stopped")
	return err
}

// cleanUpLimit is how long canceled requests may take to release their locks.
const cleanUpLimit = 2 * time.Second

// drain ends the public server so that no request is lost on the way to it, and cancels the requests that are still in
// progress after the drain timeout.
func (o *serveOptions) drain(public *server, cancelRequests context.CancelCauseFunc) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.drainLimit)
	defer cancel()
	public.closing.Store(true) // before a connection is refused, which tells clients of the shutdown
	public.stopListening()
	public.waitForConnections(ctx)
	if err := public.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	cancelRequests(errors.New("the service is shutting down"))
	ctx, cancel = context.WithTimeout(context.Background(), cleanUpLimit)
	defer cancel()
	return errors.Join(
		fmt.Errorf("requests still in progress after --drain-timeout (%v) were canceled", o.drainLimit),
		public.Shutdown(ctx))
}

// server is an HTTP server that can be drained without losing a request. http.Server.Shutdown alone closes idle
// connections at once, while the load balancer may be sending a request on one of them. That request is lost: the load
// balancer cannot tell whether it took effect and must not send a POST again.
type server struct {
	http.Server
	listener    net.Listener
	refuse      refuseFunc
	served      chan struct{} // closed when Serve has returned
	connections atomic.Int64
	// closing closes each connection with the reply to the next request that begins on it, and so tells the client not to
	// use it again. The reply to a request already in progress leaves its connection open.
	closing atomic.Bool
}

// readTimeout is how long a request may take to arrive; behind nginx, nothing else limits that for a body. It may be
// shorter than the request timeout, because net/http drops it at the end of the body.
const readTimeout = 10 * time.Second

// newServer limits how long clients may take, as some are slow on purpose.
func (o *serveOptions) newServer(handler http.Handler, refuse refuseFunc) *server {
	s := &server{refuse: refuse, served: make(chan struct{})}
	s.Server = http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		IdleTimeout:       75 * time.Second, // longer than nginx's 60 s, so that nginx closes idle connections
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		ConnState:         s.count,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.closing.Load() {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
	}
	return s
}

func (o *serveOptions) publicServer(handler http.Handler, refuse refuseFunc) *server {
	s := o.newServer(handler, refuse)
	// Measured from the end of the header. If it ended first, the reply would be lost.
	s.WriteTimeout = readTimeout + o.RequestTimeout + 10*time.Second
	return s
}

func (s *server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	}
}

// start listens, serves in the background and returns the URL.
func (s *server) start(address string, failed chan<- error) (url string, err error) {
	s.listener, err = net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", fmt.Errorf("%w: choose another port, or stop the program that listens there", err)
	case err != nil:
		return "", err
	}
	go func() {
		defer close(s.served)
		err := s.Serve(problemListener{s.listener, s.refuse})
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			failed <- err
		}
	}()
	return "http://" + s.listener.Addr().String(), nil
}

// stopListening refuses new connections: nginx then passes the request on to another replica. A connection that the
// kernel has accepted and the server has not is reset, and its request lost. nginx keeps connections open, so it hardly
// ever opens one at this moment.
func (s *server) stopListening() {
	_ = s.listener.Close()
	<-s.served // if Serve had not returned, Shutdown would close the listener again, and fail
}

// closeLimit is how long waitForConnections waits until all connections are closed.
const closeLimit = time.Second

// waitForConnections returns when no connection is left, after closeLimit or when ctx ends.
func (s *server) waitForConnections(ctx context.Context) {
	limit := time.After(closeLimit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.connections.Load() > 0 {
		select {
		case <-tick.C:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}
