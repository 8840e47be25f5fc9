// Command bench compares this repository's Redis locks with the libraries that Go programs use for the same purpose:
// redsync, redislock and rueidislock. All of them run interleaved on one private Redis. Each client of a lock has its
// own connections, as a process would.
//
//	make bench-locks BENCH="-cases 64 -rounds 10"
//
// What is measured, and how:
//
//   - locks per second: those that were released within the duration of a cell. A contender that is waiting at the end
//     keeps waiting, and its wait counts too.
//   - commands: those that the clients sent per lock, counted on their connections. What opens connections and
//     subscriptions (HELLO, CLIENT, SUBSCRIBE, PING) does not count.
//   - Results are medians over the rounds, with the 95 % interval of the rate.
//
// The bench checks mutual exclusion while it measures: a lock that lets two contenders in fails the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"stock/internal/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal kills
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	unit     time.Duration
	rounds   int
	seed     uint64
	cases    []benchCase
	subjects []subject
	markdown string
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.DurationVar(&o.unit, "time", 400*time.Millisecond, "duration of a cell; up to 4.5 times as long for some cases")
	flags.IntVar(&o.rounds, "rounds", 6, "number of rounds; a 95 % interval needs at least six")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "seed of the order of cells")
	likeCase, likeLock := regexp.MustCompile(""), regexp.MustCompile("")
	flags.TextVar(likeCase, "cases", likeCase, "run the cases that match this regular expression")
	flags.TextVar(likeLock, "locks", likeLock, "run the locks that match this regular expression")
	flags.StringVar(&o.markdown, "markdown", "", "write the table to this file too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cases = slices.DeleteFunc(slices.Clone(cases), func(c benchCase) bool { return !likeCase.MatchString(c.name) })
	o.subjects = slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !likeLock.MatchString(s.name) })
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.unit <= 0 || o.rounds < 1:
		return o, errors.New("-time and -rounds must be positive")
	case len(o.cases) == 0 || len(o.subjects) == 0:
		return o, errors.New("no case matches -cases, or no lock matches -locks")
	}
	return o, nil
}

// run runs all cells on one Redis, and writes the table. Each round runs every cell once, in a random order of its
// own, so that other work of the machine is spread over all locks.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	server, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	random := rand.New(rand.NewPCG(o.seed, 0))
	r := results{}
	violations := 0
	for round := range o.rounds {
		fmt.Fprintf(stderr, "round %d of %d\n", round+1, o.rounds)
		for _, i := range random.Perm(len(o.cases) * len(o.subjects)) {
			c, s := o.cases[i%len(o.cases)], o.subjects[i/len(o.cases)]
			sample, err := measure(ctx, server.Addr, c, s, time.Duration(c.times*float64(o.unit)))
			if err != nil {
				return fmt.Errorf("%s: %s: %w", s.name, c.name, err)
			}
			if sample.failures > 0 {
				fmt.Fprintf(stderr, "%s: %s: %d locks failed, one of them with: %v\n",
					s.name, c.name, sample.failures, sample.failure)
			}
			violations += sample.violations
			r[cell{c.name, s.name}] = append(r[cell{c.name, s.name}], sample)
		}
	}
	if violations > 0 {
		return fmt.Errorf("two contenders held a lock at once, %d times", violations)
	}
	text := r.table(o, server.Version)
	fmt.Fprint(stdout, text)
	if o.markdown == "" {
		return nil
	}
	return errors.Join(os.MkdirAll(filepath.Dir(o.markdown), 0o755), os.WriteFile(o.markdown, []byte(text), 0o644))
}
