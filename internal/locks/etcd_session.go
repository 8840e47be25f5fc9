package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdSession is the etcd lease that the keys of this process are attached to.
type etcdSession struct {
	*Lease
	id clientv3.LeaseID
}

// open returns the session. It opens one if there is none, or the last one has ended.
func (e *Etcd) open(ctx context.Context) (*etcdSession, error) {
	opening, err := e.opening.Lock(mayWait(ctx), "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = opening.Unlock() }() // a Mutex: it cannot fail
	if e.closed.Load() {
		return nil, errors.New("the etcd lock is closed")
	}
	if e.session != nil && e.session.Context().Err() == nil {
		return e.session, nil
	}
	sent := time.Now()
	granted, err := withAnswerLimit(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return e.leases.Grant(ctx, int64(math.Ceil(e.options.Lease.Seconds())))
	})
	if err != nil {
		return nil, fmt.Errorf("open an etcd session: %w", explain(err))
	}
	o := e.options
	o.Lease = time.Duration(granted.TTL) * time.Second
	s := &etcdSession{id: granted.ID}
	revoke := func(ctx context.Context) error { return e.revoke(ctx, s.id) }
	s.Lease = newLease(context.WithoutCancel(ctx), o.guaranteed(sent), 0, revoke)
	s.keepAlive(o, func(ctx context.Context) error { return e.renew(ctx, s) })
	context.AfterFunc(s.Context(), func() {
		if errors.Is(context.Cause(s.Context()), ErrLeaseLost) {
			// It ended by our clock. In etcd it may last a little longer, and make others wait.
			e.undos.takeBack(context.Background(), revoke)
		}
	})
	e.session = s
	return s, nil
}

// renew renews the session. It uses the gRPC stream directly: the client's KeepAliveOnce retries without a pause while
// there is no leader.
func (e *Etcd) renew(ctx context.Context, s *etcdSession) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := pb.NewLeaseClient(e.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return err
	}
	renewed, err := stream.Recv()
	if err == nil && renewed.TTL <= 0 {
		err = ErrLeaseLost
	}
	return err
}

func (e *Etcd) revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := e.leases.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || e.clientClosed() {
		return nil // it has ended, or the client is closed
	}
	return err
}

// ends reports whether s has ended or is about to, and its keys with it.
func (s *etcdSession) ends(e *Etcd) bool {
	return s.Context().Err() != nil || e.closed.Load() || e.clientClosed()
}

// explain adds what to do to an error of etcd.
func explain(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: compact and defragment etcd, then clear its alarm with etcdctl alarm disarm", err)
	}
	return err
}

func (e *Etcd) clientClosed() bool { return e.client.Ctx().Err() != nil }
