package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// EtcdClusterOptions configures StartEtcdCluster.
type EtcdClusterOptions struct {
	Member EtcdOptions // of every member
	// Link returns the address (host:port) at which the other members reach the one that listens at addr, such as that
	// of a proxy. Members connect directly if Link is nil.
	//
	// Messages from a member also travel on the connections that the others make to it. To cut a member off, cut its own
	// proxy, and in the other proxies the connections whose first message has the header X-Server-From with its ID.
	Link func(addr string) (string, error)
}

// EtcdCluster is an etcd cluster of three members, of which two are a majority.
type EtcdCluster struct {
	Addrs   []string // host:port for clients
	Members []*Etcd  // each may be killed, stopped and restarted
}

// StartEtcdCluster starts a cluster and waits until every member knows the leader and answers.
func StartEtcdCluster(ctx context.Context, o EtcdClusterOptions) (*EtcdCluster, error) {
	c := new(EtcdCluster)
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

func (c *EtcdCluster) start(ctx context.Context, o EtcdClusterOptions) error {
	var links, urls []string
	for i := range 3 {
		o.Member.Name = "etcd-" + strconv.Itoa(i+1)
		member, err := newEtcd(ctx, o.Member)
		if err != nil {
			return err
		}
		c.Members, c.Addrs = append(c.Members, member), append(c.Addrs, member.Addr)
		link := member.peer
		if o.Link != nil {
			if link, err = o.Link(member.peer); err != nil {
				return fmt.Errorf("link %s to the other members: %w", o.Member.Name, err)
			}
		}
		links, urls = append(links, link), append(urls, o.Member.Name+"=http://"+link)
	}
	for i, member := range c.Members {
		member.join(links[i], strings.Join(urls, ","))
		var err error
		if member.Process, err = Start(member.command); err != nil {
			return err
		}
	}
	for _, member := range c.Members {
		if err := member.Await(ctx, member.healthy); err != nil {
			return err
		}
	}
	return nil
}

// Leader returns the member that leads the cluster, and its status. While a former leader is cut off, it still takes
// itself for the leader: the one of the latest term counts. Members that do not answer within one second are left out.
func (c *EtcdCluster) Leader(ctx context.Context) (leader *Etcd, status EtcdStatus, err error) {
	for _, member := range c.Members {
		said, err := member.Status(ctx)
		if err == nil && said.Leads && said.Term >= status.Term {
			leader, status = member, said
		}
	}
	if leader == nil {
		return nil, status, errors.New("no member of the etcd cluster says that it leads")
	}
	return leader, status, nil
}

// EtcdStatus is what a member says about itself.
type EtcdStatus struct {
	ID    uint64 // of the member
	Leads bool
	Term  uint64 // of Raft: each election begins a new one
}

// Status asks the member for its status. It fails if the member does not answer within one second.
func (e *Etcd) Status(ctx context.Context) (EtcdStatus, error) {
	status, err := e.status(ctx)
	if err != nil {
		return EtcdStatus{}, fmt.Errorf("ask %s for its status: %w", e.command.Name, err)
	}
	return status, nil
}

func (e *Etcd) status(ctx context.Context) (s EtcdStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := e.ask(ctx, http.MethodPost, "/v3/maintenance/status", "{}")
	if err != nil {
		return s, err
	}
	var answer struct {
		Header struct {
			ID   uint64 `json:"member_id,string"`
			Term uint64 `json:"raft_term,string"`
		}
		Leader uint64 `json:",string"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return s, err
	}
	s = EtcdStatus{ID: answer.Header.ID, Term: answer.Header.Term}
	s.Leads = s.ID != 0 && answer.Leader == s.ID
	return s, nil
}

// Stop ends the members and removes their directories.
func (c *EtcdCluster) Stop(ctx context.Context) error {
	var errs []error
	for _, member := range c.Members {
		errs = append(errs, member.Stop(ctx))
	}
	return errors.Join(errs...)
}
