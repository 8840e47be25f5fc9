package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// masterScenarios are stories of a lock that several independent masters of Redis grant.
var masterScenarios = []Scenario{
	redlockRestartsEmpty, redlockRestartsLate, redlockRestartsWithAOF,
	mastersLost("one-of-three", 1, 3), mastersLost("two-of-five", 2, 5), mastersLost("three-of-five", 3, 5),
	multiMasterDown, multiRestartsEmpty, multiRestartsAllEmpty,
}

// deployOn deploys on servers of the round's own, which stop stops after the replicas. It takes the error of their
// start, so that those that were started before are stopped.
func (l *Lab) deployOn(
	ctx context.Context, at topology.Addresses, stop stopper, startErr error, args ...string,
) (*Deployment, error) {
	d, err := (*Deployment)(nil), startErr
	if err == nil {
		d, err = l.deploy(ctx, at, args...)
	}
	return stopAfter(ctx, d, err, stop)
}

// stopAfter has the servers of a deployment stopped after its replicas, or at once if it could not be started.
func stopAfter(ctx context.Context, d *Deployment, startErr error, stop stopper) (*Deployment, error) {
	if startErr != nil {
		return nil, errors.Join(startErr, stop(context.WithoutCancel(ctx)))
	}
	d.stops = append([]stopper{stop}, d.stops...)
	return d, nil
}

// withLease are arguments for replicas whose locks have another lease, and whose requests do not end because their time
// is over.
func withLease(lease time.Duration) []string {
	return []string{"--lease=" + lease.String(), "--request-timeout=" + patientTimeout.String()}
}

// deployOnMasters deploys on masters of the round's own.
func deployOnMasters(
	n int, o servers.RedisOptions, lease time.Duration,
) func(context.Context, *Lab) (*Deployment, error) {
	o.Name = "master"
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		masters, err := servers.StartRedisMasters(ctx, n, o)
		at := l.Topology.Addresses()
		at.Redlock = nil
		for _, m := range masters {
			at.Redlock = append(at.Redlock, m.Addr)
		}
		stop := func(ctx context.Context) error {
			var errs []error
			for _, m := range masters {
				errs = append(errs, m.Stop(ctx))
			}
			return errors.Join(errs...)
		}
		d, err := l.deployOn(ctx, at, stop, err, withLease(lease)...)
		if err == nil {
			d.masters = masters
		}
		return d, err
	}
}

// votes returns what is left of each vote for the item's lock, by the number of the master from 1. Masters that are
// down are left out.
func (s *Stage) votes(ctx context.Context) (map[int]time.Duration, error) {
	votes := map[int]time.Duration{}
	for i, address := range s.Addresses.Redlock {
		if i < len(s.masters) && s.masters[i].Err() != nil {
			continue
		}
		client := openRedis(address)
		rest, err := client.PTTL(ctx, s.lockKey()).Result()
		client.Close()
		if err != nil {
			return nil, err
		}
		if rest > 0 {
			votes[i+1] = rest
		}
	}
	return votes, nil
}

// voters formats the numbers of the masters that have voted.
func voters(votes map[int]time.Duration) string {
	return "{" + numbersOf(slices.Sorted(maps.Keys(votes))) + "}"
}

// killMasters kills the masters with the given numbers, from 1.
func (s *Stage) killMasters(ctx context.Context, what string, numbers ...int) error {
	return s.Together(ctx, what, func(context.Context) error {
		for _, n := range numbers {
			s.masters[n-1].Kill()
		}
		return nil
	})
}

// startMasters starts the masters with the given numbers anew, with what they have on disk.
func (s *Stage) startMasters(ctx context.Context, what string, numbers ...int) error {
	return s.Together(ctx, what, func(ctx context.Context) error {
		for _, n := range numbers {
			if err := s.masters[n-1].Restart(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// numbersOf formats numbers as "1, 2".
func numbersOf(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// redlockRestartsEmpty is the story of a master that forgets its vote.
var redlockRestartsEmpty = Scenario{
	Name: "redlock-restarts-empty",
	Title: "A is granted the lock by masters 1 and 2 of three. Master 2 restarts without its data, and master 3, which " +
		"was down, starts.",
	Applies: only("lock-redlock"),
	Claim:   secondHolderClaim,
	Deploy:  deployOnMasters(3, servers.RedisOptions{}, longLease),
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.killMasters(ctx, "master 3 is killed", 3); err != nil {
			return err
		}
		return s.overtake(ctx, func(ctx context.Context) error {
			before, err := s.votes(ctx)
			if err != nil {
				return err
			}
			if err := s.startMasters(ctx, "master 2 restarts without its data, and master 3 starts", 2, 3); err != nil {
				return err
			}
			after, err := s.votes(ctx)
			if err != nil {
				return err
			}
			if voters(before) == "{1, 2}" && voters(after) == "{1}" {
				s.Provef("masters {1, 2} have voted for A; after the restarts, {1} remembers it, with a PTTL of %s",
					pttl(after[1]))
			}
			return nil
		})
	},
}

// redlockRestartsLate is the same story with the remedy that the documentation of Redis recommends.
var redlockRestartsLate = Scenario{
	Name: "redlock-restarts-late",
	Title: "As redlock-restarts-empty, but master 2 starts only when every lease to which it may have agreed has " +
		"ended.",
	Applies: only("lock-redlock"),
	Claim:   leaseEndsClaim,
	Deploy:  deployOnMasters(3, servers.RedisOptions{}, pauseLease),
	Play: func(ctx context.Context, s *Stage) error {
		return s.restartAround(ctx, func(ctx context.Context) error {
			if err := s.killMasters(ctx, "master 2 is killed", 2); err != nil {
				return err
			}
			return s.startMasters(ctx, "master 3 starts", 3)
		}, func(ctx context.Context) error {
			err := eventually(ctx, "the vote of master 1 has expired", func() (bool, error) {
				votes, err := s.votes(ctx)
				return votes[1] == 0, err
			})
			if err != nil {
				return err
			}
			return s.startMasters(ctx, "the lease has ended; master 2 starts without its data", 2)
		})
	},
}

// redlockRestartsWithAOF is the same story with masters that forget nothing.
var redlockRestartsWithAOF = Scenario{
	Name:    "redlock-restarts-with-aof",
	Title:   "As redlock-restarts-empty, but each master flushes its append-only file before it answers.",
	Applies: only("lock-redlock"),
	Claim:   leaseEndsClaim,
	Deploy:  deployOnMasters(3, servers.RedisOptions{AOF: true, Fsync: "always"}, pauseLease),
	Play: func(ctx context.Context, s *Stage) error {
		return s.restartAround(ctx, func(ctx context.Context) error {
			return s.startMasters(ctx, "master 2 restarts from its append-only file, and master 3 starts", 2, 3)
		}, func(context.Context) error { return nil })
	},
}

func leaseEndsClaim(scenario.Strategy) Claim {
	return claim("granted again when the lease has ended", report.Blocked)
}

// restartAround has masters restart while A holds the lock, and others while B waits for it.
func (s *Stage) restartAround(ctx context.Context, held, waited func(context.Context) error) error {
	if err := s.killMasters(ctx, "master 3 is killed", 3); err != nil {
		return err
	}
	holder, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, "before-write")
	if err != nil {
		return err
	}
	granted := time.Now()
	before, err := s.votes(ctx)
	if err != nil {
		return err
	}
	if err := held(ctx); err != nil {
		return err
	}
	after, err := s.votes(ctx)
	if err != nil {
		return err
	}
	if voters(before) == "{1, 2}" && after[1] > 0 {
		s.Provef("masters {1, 2} have voted for A; the votes after the restarts: %s", voters(after))
	}
	bought := make(chan error, 1)
	s.inBackground(func() { bought <- s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, granted) })
	if err := errors.Join(waited(ctx), <-bought); err != nil {
		return err
	}
	// Its lease has ended by its own clock: it does not write.
	if err := s.resume(ctx, holder); err != nil {
		return err
	}
	_, err = s.send(ctx, order{client: "C", at: s.Survivor})
	return err
}

// mastersLost is the story of masters that die while a holder is inside.
func mastersLost(name string, lost, of int) Scenario {
	words, outcome := "one holder, and sales go on", report.Safe
	if lost > of/2 {
		words, outcome = "nobody is granted the lock", report.Unavailable
	}
	return Scenario{
		Name:    "redlock-masters-lost/" + name,
		Title:   fmt.Sprintf("Masters are killed while a holder is inside: %d of %d.", lost, of),
		Applies: only("lock-redlock"),
		Claim:   func(scenario.Strategy) Claim { return claim(words, outcome) },
		Deploy:  deployOnMasters(of, servers.RedisOptions{}, longLease),
		Play: func(ctx context.Context, s *Stage) error {
			what, numbers := fmt.Sprintf("%d of %d masters are killed", lost, of), []int{1, 2, 3}[:lost]
			free, err := s.refuseInside(ctx, of-lost, func(ctx context.Context) error {
				return s.killMasters(ctx, what, numbers...)
			})
			if err != nil {
				return err
			}
			if lost > of/2 {
				return s.untilStarted(ctx, free, numbers...)
			}
			return s.buy(ctx, order{client: "C", at: s.Survivor, count: 3}, free)
		},
	}
}

// refuseInside has masters break while A is inside, and B ask in vain. left is how many votes for A remain. It returns
// when A has left.
func (s *Stage) refuseInside(
	ctx context.Context, left int, strike func(context.Context) error,
) (free time.Time, err error) {
	holder, point, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, "before-write")
	if err != nil {
		return free, err
	}
	before, err := s.votes(ctx)
	if err != nil {
		return free, err
	}
	if err := strike(ctx); err != nil {
		return free, err
	}
	after, err := s.votes(ctx)
	if err != nil {
		return free, err
	}
	// B is refused when it has waited for as long as a request may wait for a lock (--lock-wait).
	b, err := s.send(ctx, order{client: "B", at: s.Survivor, count: 2})
	if err != nil {
		return free, err
	}
	if len(before) == len(s.masters) && len(after) == left && b.Outcome != history.Sold {
		s.Provef("A was at %s with the votes of all masters, and then with those of %s; B was refused while A was inside",
			point, voters(after))
	}
	err = s.release(ctx, holder)
	return time.Now(), err
}

// untilStarted has C ask in vain until masters have been started again.
func (s *Stage) untilStarted(ctx context.Context, since time.Time, numbers ...int) error {
	sold, err := s.untilSold(ctx, "C", since, lease, func(client string) (history.Op, error) {
		time.Sleep(200 * time.Millisecond) // a few tries are enough
		return s.send(ctx, order{client: client, at: s.Survivor, count: 3})
	})
	if err != nil || sold {
		return err
	}
	s.giveUp(since)
	if err := s.startMasters(ctx, "what was killed starts again, without its data", numbers...); err != nil {
		return err
	}
	_, err = s.send(ctx, order{client: "D", at: s.Survivor})
	return err
}

// multiMasterDown is the story of a lock that every master must grant.
var multiMasterDown = Scenario{
	Name:    "multi-master-down",
	Title:   "One of the three masters that must all grant a lock is killed while a holder is inside.",
	Applies: only("lock-redis-multi"),
	Claim: func(scenario.Strategy) Claim {
		return claim("nobody is granted the lock", report.Unavailable)
	},
	Deploy: deployOnMasters(3, servers.RedisOptions{}, longLease),
	Play: func(ctx context.Context, s *Stage) error {
		free, err := s.refuseInside(ctx, 2, func(ctx context.Context) error {
			return s.killMasters(ctx, "master 3 is killed", 3)
		})
		if err != nil {
			return err
		}
		return s.untilStarted(ctx, free, 3)
	},
}

// multiRestartsEmpty is the story of a lock that is forgotten by one of the masters that must all grant it.
var multiRestartsEmpty = Scenario{
	Name:    "multi-restarts-empty/one",
	Title:   "One of the three masters that must all grant a lock restarts without its data while a holder is inside.",
	Applies: only("lock-redis-multi"),
	Claim: func(scenario.Strategy) Claim {
		return claim("the other masters remember the holder", report.Safe)
	},
	Deploy: deployOnMasters(3, servers.RedisOptions{}, longLease),
	Play: func(ctx context.Context, s *Stage) error {
		free, err := s.refuseInside(ctx, 2, func(ctx context.Context) error {
			return s.startMasters(ctx, "master 3 restarts without its data", 3)
		})
		if err != nil {
			return err
		}
		return s.buy(ctx, order{client: "C", at: s.Survivor, count: 3}, free)
	},
}

// multiRestartsAllEmpty is the same story of all masters.
var multiRestartsAllEmpty = Scenario{
	Name:    "multi-restarts-empty/all",
	Title:   "All three masters of a lock restart without their data while a holder's write is on its way.",
	Applies: only("lock-redis-multi"),
	Claim:   secondHolderClaim,
	Deploy:  deployOnMasters(3, servers.RedisOptions{}, longLease),
	Play: func(ctx context.Context, s *Stage) error {
		return s.overtake(ctx, func(ctx context.Context) error {
			before, err := s.votes(ctx)
			if err != nil {
				return err
			}
			if err := s.startMasters(ctx, "all masters restart without their data", 1, 2, 3); err != nil {
				return err
			}
			after, err := s.votes(ctx)
			if err == nil && len(before) == 3 && len(after) == 0 {
				s.Provef("A had the votes of all masters, and none remembers it")
			}
			return err
		})
	},
}
