package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// Times of the replicas that play the stories. They are short, because stories wait for them.
const (
	lease          = 2 * time.Second
	requestTimeout = 3 * time.Second // the least that the service accepts
	clientTimeout  = 2 * requestTimeout
)

// Deployment is what a round is played on: the victim, which the faults strike, the survivor, which goes on selling,
// and their servers. It is used for one round only, so a story may leave it broken.
type Deployment struct {
	Victim, Survivor *topology.Isolated
	Oracle           *oracle.Oracle
	Service          scenario.Service // of the survivor
	Addresses        topology.Addresses
	MySQL            *servers.MySQL // of the round's own; nil: the lab's

	// Servers of the round's own; nil: there are none.
	nginx     *front           // in front of both replicas
	redis     *redisServers    // a master, and perhaps a Redis replica
	masters   []*servers.Redis // of Redlock
	clocked   []*clockedRedis
	etcd      *etcdMembers
	zookeeper *wrapped

	pauses map[*topology.Isolated]*pauses
	waits  *rowWaits
	stops  []func(context.Context) error // in the order in which the parts were started
}

// deploy starts the two replicas on the given servers. More arguments of "stock serve" override the usual ones.
func (l *Lab) deploy(ctx context.Context, at topology.Addresses, args ...string) (*Deployment, error) {
	return l.deployApart(ctx, at, at, args...)
}

// deployApart is deploy for a victim that reaches other servers of its locks than the survivor.
func (l *Lab) deployApart(
	ctx context.Context, victimAt, at topology.Addresses, args ...string,
) (d *Deployment, err error) {
	d = &Deployment{Oracle: l.Oracle, Addresses: at, waits: l.rowWaits(at.MySQLDSN)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop(ctx))
			d = nil
		}
	}()
	if err := d.openOracle(ctx, l.Topology); err != nil {
		return d, err
	}
	options := topology.Options{PausePoints: true, ReplicaArgs: append([]string{
		"--lease=" + lease.String(), "--request-timeout=" + requestTimeout.String(), "--lock-wait=" + lease.String(),
		// MySQL would drop what a story holds back for longer.
		"--mysql-idle-timeout=" + (2 * readersTimeout).String(),
	}, append(l.forReaders(args), l.ReplicaArgs...)...)}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.Victim, err = l.Topology.StartIsolated(starting, "victim", victimAt, options)
		return err
	})
	group.Go(func() (err error) {
		d.Survivor, err = l.Topology.StartIsolated(starting, "survivor", at, options)
		return err
	})
	err = group.Wait()
	for _, r := range []*topology.Isolated{d.Victim, d.Survivor} {
		if r != nil {
			d.onStop(func(context.Context) error { r.Close(); return nil })
		}
	}
	if err != nil {
		return d, err
	}
	d.pauses = map[*topology.Isolated]*pauses{d.Victim: {}, d.Survivor: {}}
	d.Service = scenario.Service{
		URL: d.Survivor.URL, Admin: d.Survivor.AdminURL, Client: &http.Client{Timeout: 10 * time.Second},
	}
	return d, nil
}

// patientTimeout is longer than any story, and readersTimeout longer than any that somebody reads step by step.
const (
	patientTimeout = 30 * time.Second
	readersTimeout = time.Hour
)

// forReaders gives requests that should not end before the story tells them to the time to read its steps.
func (l *Lab) forReaders(args []string) []string {
	const flag = "--request-timeout="
	args = slices.Clone(args)
	if at := slices.Index(args, flag+patientTimeout.String()); l.Reading && at >= 0 {
		args[at] = flag + readersTimeout.String()
	}
	return args
}

// patient deploys replicas on the servers of the lab whose requests do not end because their time is over.
func patient(args ...string) func(context.Context, *Lab) (*Deployment, error) {
	args = append([]string{"--request-timeout=" + patientTimeout.String()}, args...)
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		return l.deploy(ctx, l.Topology.Addresses(), args...)
	}
}

// openOracle opens an oracle for the servers, unless they are those of the lab.
func (d *Deployment) openOracle(ctx context.Context, t *topology.Topology) (err error) {
	if d.Addresses.MySQLDSN == t.MySQLDSN && slices.Equal(d.Addresses.Redis, t.Redis) {
		return nil
	}
	config := oracle.Config{
		MySQLDSN: d.Addresses.MySQLDSN, Redis: d.Addresses.Redis,
		Account: d.Addresses.Account, KeyPrefix: d.Addresses.KeyPrefix,
	}
	if d.Oracle, err = oracle.Open(ctx, config); err != nil {
		return err
	}
	d.onStop(func(context.Context) error { d.Oracle.Close(); return nil })
	return nil
}

// onStop has a part stopped when the round has ended. The part that was started last is stopped first.
func (d *Deployment) onStop(stop func(context.Context) error) { d.stops = append(d.stops, stop) }

// stop stops what the deployment has started, even if ctx has ended.
func (d *Deployment) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	for _, stop := range slices.Backward(d.stops) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}

// setStock puts as many units of each item on sale. If the machine is busy, the service may need more than one try.
func (d *Deployment) setStock(ctx context.Context, units int64, items ...int64) (err error) {
	stock := map[int64]int64{}
	for _, item := range items {
		stock[item] = units
	}
	for range 5 {
		if err = d.Service.SetStock(ctx, stock); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// errNotFound is returned for a path that does not exist at the moment.
var errNotFound = errors.New("not found")

// admin sends a request to a replica's admin listener and decodes the reply, unless reply is nil.
func (d *Deployment) admin(ctx context.Context, method string, r *topology.Isolated, path string, reply any) error {
	request, err := http.NewRequestWithContext(ctx, method, r.AdminURL+path, nil)
	if err != nil {
		return err
	}
	response, err := d.Service.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w: %s", method, request.URL, errNotFound, body)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, request.URL, response.Status, body)
	case reply == nil:
		return nil
	}
	return json.Unmarshal(body, reply)
}
