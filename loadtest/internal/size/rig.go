package size

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"stock/internal/stats"
	"stock/loadtest/internal/bench"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Constants of a measurement.
const (
	mostReplicas = 4
	warmUp       = 200 * time.Millisecond
	timeout      = 20 * time.Second
	ample        = 1_000_000_000 // units of each item: more than a measurement sells
)

// A Rig is a lab that can have slower round trips, slower flushes and less CPU time. Close it.
type Rig struct {
	Time   time.Duration // of a measurement
	Rounds int           // how often each setting is measured

	lab       *lab.Lab
	catalogue []scenario.Strategy
	quotas    map[Station]*Quota // empty without root
	dir       string
	late      time.Duration // that proxies add to a delay of a message, measured on one idle connection
	number    int           // of the latest measurement
	seed      uint64
}

// NewRig starts the servers, and four replicas behind proxies. noQuotas says why CPU time cannot be limited here; it is
// nil if it can.
func NewRig(ctx context.Context, stockBinary string, seed uint64) (r *Rig, noQuotas, err error) {
	r = &Rig{Time: 600 * time.Millisecond, Rounds: 1, seed: seed, quotas: map[Station]*Quota{}}
	if r.dir, err = os.MkdirTemp("", "size"); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	r.lab, err = lab.Start(ctx, topology.Options{
		Replicas: mostReplicas, StockBinary: stockBinary, Proxies: true, SlowFlushes: true,
	})
	if err != nil {
		return r, nil, err
	}
	if r.catalogue, err = r.lab.Target.Strategies(ctx); err != nil {
		return r, nil, err
	}
	return r, r.makeQuotas(), nil
}

// makeQuotas puts each station but the load into a cgroup.
func (r *Rig) makeQuotas() error {
	for station, pids := range r.processes() {
		quota, err := NewQuota(fmt.Sprintf("stock-%d-%s", os.Getpid(), station), pids)
		if err != nil {
			return err
		}
		r.quotas[station] = quota
	}
	return nil
}

// processes lists the processes of each station but the load.
func (r *Rig) processes() map[Station][]int {
	t := r.lab.Topology
	pids := map[Station][]int{
		Nginx: {t.Nginx.PID}, MySQL: {t.Servers.MySQL.PID}, Redis: {t.Servers.Redis.PID},
	}
	for _, replica := range t.Replicas {
		pids[Service] = append(pids[Service], replica.PID)
	}
	return pids
}

// Close stops everything.
func (r *Rig) Close() error {
	var errs []error
	if r.lab != nil {
		errs = append(errs, r.lab.Close())
	}
	for _, quota := range r.quotas {
		errs = append(errs, quota.Remove())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// Resolve returns the current names of strategies. It fails if there is no strategy of a name.
func (r *Rig) Resolve(names []string) (current []string, err error) {
	for _, s := range r.catalogue {
		if s.IsIn(names) {
			current = append(current, s.Name)
		}
	}
	return current, scenario.CheckNames(names, r.catalogue)
}

// MeasureAll measures all settings of a strategy in each round. A sample has the median goodput of its rounds, and
// their mean CPU times. progress is called before each measurement.
func (r *Rig) MeasureAll(
	ctx context.Context, strategy string, settings []Setting, progress func(Setting),
) ([]Sample, error) {
	all := make([]Sample, len(settings))
	for range r.Rounds {
		for i, setting := range settings {
			progress(setting)
			s, err := r.Measure(ctx, strategy, setting)
			if err != nil {
				return nil, err
			}
			sum := &all[i]
			if sum.CPU == nil {
				*sum = Sample{Setting: setting, CPU: map[Station]float64{}}
			}
			for station, need := range s.CPU {
				sum.CPU[station] += need / float64(r.Rounds)
			}
			sum.Rounds = append(sum.Rounds, s.Goodput)
			sum.Goodput = stats.Median(sum.Rounds)
		}
	}
	return all, nil
}

// Measure measures a strategy in a setting. It returns an error if the judge finds the strategy wrong.
func (r *Rig) Measure(ctx context.Context, strategy string, s Setting) (sample Sample, err error) {
	if err := r.apply(s); err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, r.apply(Setting{})) }()
	choices, _, err := scenario.Choose(r.catalogue, []string{strategy}, "")
	if err != nil {
		return sample, err
	}
	r.number++
	dir := filepath.Join(r.dir, fmt.Sprint(r.number))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	target := r.lab.Target
	if s.Replicas < mostReplicas {
		target.URL = target.Fewer[s.Replicas]
	}
	target.Fewer = nil
	var before, after map[Station]time.Duration
	var beginErr, drainErr error
	runner, err := scenario.New(target, scenario.Config{
		Choices: choices[len(choices)-1:], Replicas: s.Replicas, Rounds: 1, Seed: r.seed + uint64(r.number),
		Users: s.Users, Goods: s.Items, Duration: r.Time, Timeout: timeout, WarmUp: warmUp,
		Stock: int64(s.Items) * ample, MinCount: 1, MaxCount: 1, Dir: dir,
		Watch:   func(history.Run) func(*history.Op) { before, beginErr = r.usage(); return nil },
		Drained: func() { after, drainErr = r.usage() },
	}, time.Now())
	if err != nil {
		return sample, err
	}
	err = runner.Run(ctx, func(m scenario.Measured) (err error) {
		if err := errors.Join(beginErr, drainErr); err != nil {
			return err
		}
		sample, err = newSample(s, m, before, after)
		return err
	})
	if death := r.lab.Check(); death != nil && ctx.Err() == nil {
		return sample, death // the cause of any other error
	}
	if err != nil {
		return sample, fmt.Errorf("%s with %v: %w", strategy, s, err)
	}
	return sample, nil
}

// apply makes the round trips, flushes and CPU time those of the setting.
func (r *Rig) apply(s Setting) error {
	delay := s.AddedRTT
	if delay > 0 {
		delay = max(delay-r.late, time.Microsecond) // proxies cannot add less than r.late
	}
	for _, proxies := range r.lab.Topology.Proxies {
		proxies.MySQL.Delay(delay)
		proxies.Redis.Delay(delay)
	}
	errs := []error{r.lab.Topology.Servers.MySQL.DelayFlushes(s.AddedFlush)}
	for station, quota := range r.quotas {
		errs = append(errs, quota.Limit(s.Cores[station]))
	}
	return errors.Join(errs...)
}

// usage is the CPU time that each station but the load has used so far.
func (r *Rig) usage() (map[Station]time.Duration, error) {
	used := map[Station]time.Duration{}
	for station, pids := range r.processes() {
		for _, pid := range pids {
			of, err := bench.CPUTime(pid)
			if err != nil {
				return nil, err
			}
			used[station] += of
		}
	}
	return used, nil
}

func newSample(s Setting, m scenario.Measured, before, after map[Station]time.Duration) (Sample, error) {
	sales := m.Verdict.Good
	if m.History.Run.Claim == verify.ClaimSellsNothing {
		sales = int64(len(m.History.Ops))
	}
	switch {
	case m.Verdict.Result == verify.Wrong:
		return Sample{}, fmt.Errorf("it was found wrong: %s", m.Verdict.Evidence)
	case sales == 0:
		return Sample{}, errors.New("nothing was sold")
	}
	end := m.History.End
	sample := Sample{
		Setting: s, Goodput: float64(sales) / time.Duration(end.EndedNS-end.StartedNS).Seconds(),
		CPU: map[Station]float64{Load: time.Duration(end.DriverCPUNS).Seconds() / float64(sales)},
	}
	for station, used := range after {
		sample.CPU[station] = (used - before[station]).Seconds() / float64(sales)
	}
	return sample, nil
}

// Environment describes the servers.
func (r *Rig) Environment() topology.Environment { return r.lab.Topology.Environment }
