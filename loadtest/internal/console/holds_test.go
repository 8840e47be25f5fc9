package console

import (
	"context"
	"io"
	"net"
	"testing"

	"stock/internal/must"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

const write = "UPDATE good_stock SET stock = 9 WHERE goods_id = 1"

// withReplicas returns a console whose lab has replicas behind proxies, and a connection through each. The server
// answers every message with itself.
func withReplicas(t *testing.T, n int) (*Console, []net.Conn) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		for conn, err := server.Accept(); err == nil; conn, err = server.Accept() {
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	var all topology.Topology
	var conns []net.Conn
	for range n {
		proxy := tcpproxy.New(t, server.Addr().String())
		conn, err := net.Dial("tcp", proxy.Addr())
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		all.Replicas = append(all.Replicas, &topology.Replica{})
		all.Proxies = append(all.Proxies, &topology.Proxies{MySQL: proxy})
		conns = append(conns, conn)
	}
	return &Console{ctx: t.Context(), board: newBoard(State{}), lab: &lab.Lab{Topology: &all}}, conns
}

func sendWrite(t *testing.T, conn net.Conn) {
	_, err := io.WriteString(conn, write)
	must.Succeed(t, err)
}

func wantAnswered(t *testing.T, conn net.Conn) {
	t.Helper()
	answer := make([]byte, len(write))
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Error(err)
	}
}

var heldAtWrite = saleRequest{Hold: messages.Write}

func TestOneSaleIsHeldThoughAMessageOfEachReplicaFits(t *testing.T) {
	t.Parallel()
	c, conns := withReplicas(t, 3)
	arrived, stop := c.catch(scenario.Strategy{Stores: []string{oracle.MySQL}}, heldAtWrite)
	sendWrite(t, conns[0])
	held := <-arrived
	sendWrite(t, conns[1])
	stop()
	wantAnswered(t, conns[1])
	sendWrite(t, conns[2])
	wantAnswered(t, conns[2])
	if isClosed(held.Answered()) {
		t.Error("the sale that was received is not held")
	}
	held.release()
	wantAnswered(t, conns[0])
}

func TestAConsoleThatHasEndedHoldsNothing(t *testing.T) {
	t.Parallel()
	c, conns := withReplicas(t, 1)
	ctx, end := context.WithCancel(t.Context())
	c.ctx = ctx
	arrived, stop := c.catch(scenario.Strategy{Stores: []string{oracle.MySQL}}, heldAtWrite)
	defer stop()
	sendWrite(t, conns[0])
	held := <-arrived
	end()
	if err := c.keep(held); err == nil || len(c.held) != 0 {
		t.Errorf("%v, and %d sales are held; want a refusal", err, len(c.held))
	}
	wantAnswered(t, conns[0])
}
