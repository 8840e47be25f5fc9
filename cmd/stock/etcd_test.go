package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

func openEtcdAs(t *testing.T, user, addr string, config *tls.Config) *clientv3.Client {
	t.Helper()
	o := storeOptions{etcd: []string{addr}, accounts: accounts{etcd: account{user: user, password: secret, tls: config}}}
	client, err := o.openEtcd()
	must.Succeed(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// etcdWithUser is a server without TLS that wants a user. The proxy counts the requests for a token.
type etcdWithUser struct {
	proxy  *tcpproxy.Proxy
	client *clientv3.Client // through the proxy
	admin  *clientv3.Client // past the proxy
}

func startEtcdWithUser(t *testing.T) etcdWithUser {
	t.Helper()
	server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true, Args: []string{"--bcrypt-cost=4"}})
	proxy := tcpproxy.New(t, server.Addr)
	proxy.Select(hasPassword)
	e := etcdWithUser{proxy, openEtcdAs(t, "root", proxy.Addr(), nil), openEtcdAs(t, "root", server.Addr, nil)}
	ctx := limited(t)
	_, err := e.admin.UserAdd(ctx, "root", secret)
	must.Succeed(t, err)
	_, err = e.admin.UserGrantRole(ctx, "root", "root")
	must.Succeed(t, err)
	_, err = e.admin.AuthEnable(ctx)
	must.Succeed(t, err)
	return e
}

func hasPassword(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte(secret)) }

// forget makes etcd forget all tokens.
func (e etcdWithUser) forget(t *testing.T) {
	t.Helper()
	_, err := e.admin.UserChangePassword(limited(t), "root", secret)
	must.Succeed(t, err)
}

// limited returns a context for requests that would be repeated without end if etcd refused them.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (e etcdWithUser) get(t *testing.T) {
	t.Helper()
	_, err := e.client.Get(limited(t), "locks/")
	must.Succeed(t, err)
}

func (e etcdWithUser) wantAuthentications(t *testing.T, want int) {
	t.Helper()
	if got := e.proxy.Count(); got != want {
		t.Errorf("%d requests for a token, want %d", got, want)
	}
}

// Otherwise nobody would get a token of an etcd that takes longer to check the password than any caller waits.
func TestOneAuthenticationServesAllCallersEvenIfThoseThatCausedItGaveUp(t *testing.T) {
	t.Parallel()
	e := startEtcdWithUser(t)
	answer := e.proxy.CatchReply(hasPassword)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	failed := make(chan error)
	for range 3 {
		go func() {
			_, err := e.client.Get(ctx, "locks/")
			failed <- err
		}()
	}
	<-answer.Arrived()
	giveUp()
	for range 3 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gave up got %v", err)
		}
	}
	answer.Release()
	e.get(t)
	e.wantAuthentications(t, 1)
}

func TestAForgottenTokenIsReplaced(t *testing.T) {
	t.Parallel()
	t.Run("request", func(t *testing.T) {
		t.Parallel()
		e := startEtcdWithUser(t)
		e.get(t)
		e.forget(t)
		e.get(t)
		e.wantAuthentications(t, 2)
	})
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		e := startEtcdWithUser(t)
		e.get(t)
		e.forget(t)
		put, err := e.admin.Put(limited(t), "locks/item", "")
		must.Succeed(t, err)
		watch := <-e.client.Watch(limited(t), "locks/item", clientv3.WithRev(put.Header.Revision))
		if len(watch.Events) != 1 {
			t.Errorf("the watch ended: %v", watch.Err())
		}
		e.wantAuthentications(t, 2)
	})
}

func TestRenewalsOfASessionNeedNoAuthentication(t *testing.T) {
	t.Parallel()
	e := startEtcdWithUser(t)
	lock := locks.NewEtcd(e.client, locks.Options{Renew: 20 * time.Millisecond})
	defer lock.Close()
	lease, err := lock.Lock(limited(t), "item")
	must.Succeed(t, err)
	for range 3 {
		before := lease.Deadline()
		eventually(t, "the session is renewed", func() bool { return lease.Deadline().After(before) })
	}
	e.wantAuthentications(t, 1)
}

// Until etcd requires users, it takes every client. Then it knows this one by its certificate, which has another name.
func TestTheServiceLogsInOnceEtcdRequiresIt(t *testing.T) {
	t.Parallel()
	ctx, s := limited(t), newSecured(t)
	s.startEtcd(t)
	admin := openEtcdAs(t, "root", s.etcd.Addr, s.tls(t))
	_, err := admin.AuthDisable(ctx)
	must.Succeed(t, err)
	client := openEtcdAs(t, "stock", s.etcd.Addr, s.tls(t))
	_, err = client.Get(ctx, "locks/")
	must.Succeed(t, err)
	_, err = admin.AuthEnable(ctx)
	must.Succeed(t, err)
	_, err = client.Get(ctx, "locks/")
	must.Succeed(t, err)
}
