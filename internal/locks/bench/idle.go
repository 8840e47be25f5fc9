package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"stock/internal/locks"
	"stock/internal/servers"
)

// idle is the cost of holding many leases without using them. Shares are of one core.
type idle struct {
	Leases   int
	CPU      float64 // of the process that holds them
	RedisCPU float64
}

// measureIdle measures for two renewals of every lease.
func measureIdle(ctx context.Context, server *servers.Redis, leases int, lease time.Duration) (*idle, error) {
	j := job{Addr: server.Addr, Key: "bench:idle", Leases: leases, Lease: lease, Time: 2 * lease / 3}
	outcome, err := runJobs(ctx, server, []job{j})
	if err != nil {
		return nil, fmt.Errorf("%d idle leases: %w", leases, err)
	}
	r := outcome.results[0]
	if r.Failures > 0 {
		return nil, fmt.Errorf("%d of %d idle leases were lost: %s", r.Failures, leases, r.Failure)
	}
	return &idle{
		Leases:   leases,
		CPU:      r.CPU.Seconds() / j.Time.Seconds(),
		RedisCPU: outcome.redisCPU.Seconds() / j.Time.Seconds(),
	}, nil
}

// holdIdle takes a lease on each of many keys and keeps them.
func holdIdle(j job, _ detector, begin func() error) (*result, error) {
	client := newClient(j.Addr, &requests{})
	defer client.Close()
	queue := locks.NewRedisQueue(client, locks.Options{Lease: j.Lease})
	defer queue.Close()

	leases, err := lockAll(queue, j)
	if err != nil {
		return nil, err
	}
	if err := begin(); err != nil {
		return nil, err
	}
	used := cpu()
	time.Sleep(j.Time)
	r := &result{CPU: cpu() - used}
	for _, lease := range leases {
		if err := context.Cause(lease.Context()); err != nil {
			r.Failures++
			r.Failure = err.Error()
		}
	}
	return r, nil
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the system call is missing: nothing can be measured on this system
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func lockAll(queue *locks.RedisQueue, j job) ([]*locks.Lease, error) {
	leases := make([]*locks.Lease, j.Leases)
	const workers = 16
	errs := make([]error, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < j.Leases && errs[worker] == nil; i += workers {
				leases[i], errs[worker] = queue.Lock(context.Background(), fmt.Sprintf("%s:%d", j.Key, i))
			}
		})
	}
	all.Wait()
	return leases, errors.Join(errs...)
}
