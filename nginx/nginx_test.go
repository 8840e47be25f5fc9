package nginx_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// replica is a test double of a replica. It counts the requests that it has read.
type replica struct {
	*httptest.Server
	read atomic.Int64
}

func startReplica(t *testing.T, handle http.HandlerFunc) *replica {
	t.Helper()
	r := &replica{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		r.read.Add(1)
		handle(w, request)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *replica) address() string { return strings.TrimPrefix(r.URL, "http://") }

func ok(http.ResponseWriter, *http.Request) {}

// die ends the connection without an answer, as a killed replica does.
func die(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// balance starts nginx in front of the replicas and returns its URL.
func balance(t *testing.T, replicas ...string) string {
	t.Helper()
	_, address := start(t, nginx.Main(), replicas...)
	return "http://" + address
}

// start starts nginx in front of the replicas and returns its address.
func start(t *testing.T, main string, replicas ...string) (server *servers.Nginx, address string) {
	t.Helper()
	serverstest.Long(t)
	address = serverstest.FreeAddress(t)
	server, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main:  main,
		Sites: nginx.Render("stock", address, replicas),
		Ready: []string{"http://" + address + "/nginx/problem"}, // which reaches no replica
	})
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, server)
	return server, address
}

func send(t *testing.T, method, url string) (status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"goods_id":1,"count":1}`))
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func statuses(t *testing.T, method, url string, n int) (got []int) {
	t.Helper()
	for range n {
		got = append(got, send(t, method, url))
	}
	return got
}

// wantOK sends n requests, and wants 200 for each.
func wantOK(t *testing.T, method, url string, n int) {
	t.Helper()
	if got := statuses(t, method, url, n); slices.Max(got) != http.StatusOK {
		t.Errorf("%s %s: the statuses are %v, want 200 only", method, url, got)
	}
}

func (r *replica) wantRead(t *testing.T, want int64) {
	t.Helper()
	if n := r.read.Load(); n != want {
		t.Errorf("the replica %s read %d requests, want %d", r.URL, n, want)
	}
}

func TestARequestIsPassedOnIfAReplicaRefusesTheConnection(t *testing.T) {
	t.Parallel()
	dead, alive := startReplica(t, ok), startReplica(t, ok)
	dead.Close()
	url := balance(t, dead.address(), alive.address())
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		wantOK(t, method, url, 6)
	}
	alive.wantRead(t, 12)
}

// A body that comes after its header is not buffered. nginx can send a request to another replica only while it has
// sent nothing.
func TestADeadReplicaCostsNoRequestWhoseBodyComesLater(t *testing.T) {
	t.Parallel()
	dead := startReplica(t, ok)
	dead.Close()
	for name, dead := range map[string]string{"refuses connections": dead.address(), "host is down": silent(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, bodies := make(chan struct{}), make(chan string, 6)
			alive := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				body, err := io.ReadAll(r.Body)
				must.Succeed(t, err)
				bodies <- string(body)
			}))
			t.Cleanup(alive.Close)
			_, address := start(t, nginx.Main(), dead, strings.TrimPrefix(alive.URL, "http://"))
			for range cap(bodies) {
				conn := dial(t, address)
				write(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n1")
				<-arrived // after nginx has tried the dead replica, if it does
				write(t, conn, "234")
				if got, err := parse(conn); err != nil || got.StatusCode != http.StatusOK || <-bodies != "1234" {
					t.Errorf("the reply is %+v, %v, want 200", got, err)
				}
			}
		})
	}
}

// The kernel accepts connections for a listener until its backlog is full. It then ignores new ones, as a host that is
// down does. If nginx tried that replica each time, 100 of the 200 requests would wait
// for proxy_connect_timeout, 200 s in all.
func TestAReplicaWhoseHostIsDownIsLeftOut(t *testing.T) {
	t.Parallel()
	alive := startReplica(t, ok)
	url := balance(t, silent(t), alive.address())
	started := time.Now()
	wantOK(t, http.MethodPost, url, 200)
	if took := time.Since(started); took > 2*time.Minute {
		t.Errorf("200 requests took %v, want about one proxy_connect_timeout of 2 s", took)
	}
}

// nginx leaves out both for fail_timeout. Without backups, it would refuse every request during that time.
func TestReplicasAreTriedAgainAtOnceAfterBothFailed(t *testing.T) {
	t.Parallel()
	addresses := []string{serverstest.FreeAddress(t), serverstest.FreeAddress(t)}
	url := balance(t, addresses...)
	if got := send(t, http.MethodPost, url); got != http.StatusServiceUnavailable {
		t.Fatalf("without a replica, the status is %d, want 503", got)
	}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		must.Succeed(t, err)
		replica := httptest.NewUnstartedServer(http.HandlerFunc(ok))
		replica.Listener.Close()
		replica.Listener = listener
		replica.Start()
		t.Cleanup(replica.Close)
	}
	wantOK(t, http.MethodPost, url, 4)
}

// silent returns an address where nothing accepts connections and nothing refuses them.
func silent(t *testing.T) (address string) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { syscall.Close(socket) })
	must.Succeed(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Succeed(t, syscall.Listen(socket, 0))
	name, err := syscall.Getsockname(socket)
	must.Succeed(t, err)
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 16 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address // the backlog is full
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog does not fill up")
	return ""
}

func TestAPostIsNotSentAgainIfAReplicaDiesAfterReadingIt(t *testing.T) {
	t.Parallel()
	dying, alive := startReplica(t, die), startReplica(t, ok)
	url := balance(t, dying.address(), alive.address())
	lost := 0
	for _, status := range statuses(t, http.MethodPost, url, 6) {
		if status == http.StatusBadGateway {
			lost++
		}
	}
	// After the first failure, the dying replica gets a request only once per fail_timeout.
	if dead, live := dying.read.Load(), alive.read.Load(); dead == 0 || dead != int64(lost) || dead+live != 6 {
		t.Errorf("%d of 6 requests were lost; the replicas read %d and %d, want each request read once", lost, dead, live)
	}
}

// nginx may take a broken connection that it has used before for one that the replica closed while it was idle.
func TestAPostIsNotSentAgainOnAnotherConnection(t *testing.T) {
	t.Parallel()
	var dying atomic.Bool
	replica := startReplica(t, func(w http.ResponseWriter, r *http.Request) {
		if dying.Load() {
			die(w, r)
		}
	})
	alive := startReplica(t, ok)
	url := balance(t, replica.address(), alive.address())
	wantOK(t, http.MethodPost, url, 8)
	dying.Store(true)
	if got := statuses(t, http.MethodPost, url, 8); slices.Max(got) != http.StatusBadGateway {
		t.Errorf("the statuses are %v, want 502 among them", got)
	}
	if sum := replica.read.Load() + alive.read.Load(); sum != 16 {
		t.Errorf("the replicas read %d requests, want the 16 that were sent", sum)
	}
}

// hang starts a replica that answers nothing until the test ends.
func hang(t *testing.T) *replica {
	t.Helper()
	release := make(chan struct{})
	r := startReplica(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the replica is closed
	return r
}

// Half of all requests would wait for the replica if they were given to the replicas in turn.
func TestAReplicaThatHangsGetsNoRequestWhileItHasMoreThanTheOthers(t *testing.T) {
	t.Parallel()
	hung, alive := hang(t), startReplica(t, ok)
	url := balance(t, hung.address(), alive.address())
	answered := make(chan error, 2)
	for range 2 { // one of them is sent to each replica
		go func() {
			response, err := http.Post(url, "", nil)
			if err == nil {
				response.Body.Close()
			}
			answered <- err
		}()
	}
	must.Succeed(t, <-answered)
	wantOK(t, http.MethodPost, url, 20)
	hung.wantRead(t, 1)
}

// If nginx waited for the probe's answer as long as for others, it would not pass the probe on.
func TestAProbeFindsAReplicaThatHangs(t *testing.T) {
	t.Parallel()
	hung, alive := hang(t), startReplica(t, ok)
	url := balance(t, hung.address(), alive.address())
	wantOK(t, http.MethodGet, url+"/livez", 2)
	wantOK(t, http.MethodPost, url, 20)
	hung.wantRead(t, 1)
}

func TestAGetIsSentAgainIfAReplicaDiesAfterReadingIt(t *testing.T) {
	t.Parallel()
	dying, alive := startReplica(t, die), startReplica(t, ok)
	url := balance(t, dying.address(), alive.address())
	wantOK(t, http.MethodGet, url, 6)
}
