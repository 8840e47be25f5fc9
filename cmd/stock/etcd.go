package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// openEtcd returns a client that connects in the background.
func (o *storeOptions) openEtcd() (*clientv3.Client, error) {
	endpoints, scheme := slices.Clone(o.etcd), "http://"
	if o.accounts.etcd.tls != nil {
		scheme = "https://" // never without TLS
	}
	for i := range endpoints {
		endpoints[i] = scheme + endpoints[i]
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		// Requests fail until the next attempt to connect. By default that is up to two minutes.
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
		},
		MinConnectTimeout: time.Second,
	})}
	if o.accounts.etcd.user != "" {
		login := &etcdLogin{user: o.accounts.etcd.user, password: o.accounts.etcd.password}
		options = append(options,
			grpc.WithChainUnaryInterceptor(login.unary), grpc.WithChainStreamInterceptor(login.stream))
	}
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  o.accounts.etcd.tls,
		DialTimeout:          time.Second,
		DialKeepAliveTime:    10 * time.Second, // detects a silent server; gRPC allows no shorter time
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions:          options,
		Logger:               zap.NewNop(), // the client also returns what it logs as errors
	})
}

// etcdLogin gives every request of a client the token of a user, which etcd hands out for the password. The client
// could do that itself, but:
//
//   - It sends the old token with the request for a new one. Before version 3.4.28, etcd refuses that if it has
//     forgotten the old token, as it may when it restarts. The client then asks again, without end.
//   - It asks within the time that the caller has, and each caller asks. To check a password takes etcd some 0.1 s of
//     processor time. If the machine is so busy that no caller waits that long, none gets a token, but etcd goes on
//     checking for all of them.
//   - It asks whenever it opens a stream, so for every renewal of a session.
//   - It cannot be opened while etcd is down.
type etcdLogin struct {
	user, password string

	mu    sync.Mutex
	token *etcdToken // nil if there is none, or etcd has refused it
}

// etcdToken is a token that etcd has been asked for. One request serves all callers.
type etcdToken struct {
	done  chan struct{} // closed when etcd has answered; value and err are set before
	value string        // empty if etcd has no users
	err   error
}

// authenticationLimit is longer than etcd takes to give up if it has no leader, which is 7 s.
const authenticationLimit = 10 * time.Second

// get returns the token that etcd has not refused. If there is none, it asks for one; that goes on if ctx ends.
func (l *etcdLogin) get(ctx context.Context, conn *grpc.ClientConn) (*etcdToken, error) {
	l.mu.Lock()
	if l.token == nil {
		l.token = &etcdToken{done: make(chan struct{})}
		go l.authenticate(l.token, conn)
	}
	token := l.token
	l.mu.Unlock()
	select {
	case <-token.done:
		return token, token.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (l *etcdLogin) authenticate(token *etcdToken, conn *grpc.ClientConn) {
	defer close(token.done)
	ctx, cancel := context.WithTimeout(context.Background(), authenticationLimit)
	defer cancel()
	request := &pb.AuthenticateRequest{Name: l.user, Password: l.password}
	reply, err := pb.NewAuthClient(conn).Authenticate(ctx, request)
	switch {
	case err == nil:
		token.value = reply.Token
	case !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		token.err = err
		l.forget(token)
	}
}

func (l *etcdLogin) forget(token *etcdToken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.token = nil
	}
}

func (l *etcdLogin) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if method == "/etcdserverpb.Auth/Authenticate" {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	token, err := l.get(ctx, conn)
	if err != nil {
		return err
	}
	err = invoke(token.attach(ctx), method, request, reply, conn, options...)
	if err != nil && token.refused(err.Error()) {
		l.forget(token)
		return rpctypes.ErrGRPCInvalidAuthToken // the client sends the request again
	}
	return err
}

func (l *etcdLogin) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	token, err := l.get(ctx, conn)
	if err != nil {
		return nil, err
	}
	stream, err := open(token.attach(ctx), desc, conn, method, options...)
	if err != nil {
		return nil, err
	}
	return &etcdStream{ClientStream: stream, login: l, token: token}, nil
}

// etcdStream ends if etcd refuses a watch because of the token, as if the connection were lost. The client then opens
// another stream, with another token.
type etcdStream struct {
	grpc.ClientStream
	login *etcdLogin
	token *etcdToken
}

func (s *etcdStream) RecvMsg(message any) error {
	if err := s.ClientStream.RecvMsg(message); err != nil {
		return err
	}
	watch, ok := message.(*pb.WatchResponse)
	if ok && watch.Canceled && s.token.refused(watch.CancelReason) {
		s.login.forget(s.token)
		return status.Error(codes.Unavailable, watch.CancelReason)
	}
	return nil
}

func (t *etcdToken) attach(ctx context.Context) context.Context {
	if t.value == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, t.value)
}

// refused reports whether etcd has refused a request for this reason because of the token.
func (t *etcdToken) refused(reason string) bool {
	refusals := []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty}
	if t.value == "" { // the certificate of the client has the name of another user, or of none
		refusals = append(refusals, rpctypes.ErrGRPCPermissionDenied)
	}
	return slices.ContainsFunc(refusals, func(refusal error) bool {
		return strings.Contains(reason, rpctypes.ErrorDesc(refusal))
	})
}
