// Command bench compares this repository's Redis locks with the libraries that Go programs use for the same purpose:
// redsync, redislock and rueidislock. All of them run interleaved on one private Redis, with the clients in processes
// of their own.
//
//	make bench-locks BENCH="-cases uncontended -rounds 10"
//
// The bench checks mutual exclusion while it measures: a lock that lets two contenders in fails the run.
//
// What is measured, and how:
//
//   - uncontended: the time of a lock and unlock. The locks take turns, operation by operation, in one process, each
//     with one client, one key and one caller. The median is the time of one operation, not the reciprocal of a rate.
//   - locks per second and fairness: locks that were released within the duration of a cell. A contender that is
//     waiting at the end keeps waiting, and its wait counts too.
//   - commands and trips: the commands that the clients sent per lock, and in how many round trips, counted on their
//     connections. What opens connections and subscriptions (HELLO, CLIENT, SUBSCRIBE, PING) does not count.
//   - Results are medians over the rounds with their 95 % intervals. Targets are judged by ratios within a round.
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

// Exit statuses.
const (
	exitDone        = 0
	exitViolated    = 1 // two contenders held a lock at once
	exitUnusable    = 2 // wrong usage, or the run failed
	exitInterrupted = 130
)

func main() {
	if os.Getenv(asClient) != "" {
		beClient()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// beClient runs this process as a client. File descriptor 3 is the memory that it shares with the others.
func beClient() {
	if err := client(os.Stdin, os.Stdout, os.NewFile(3, "shared memory")); err != nil {
		fmt.Fprintln(os.Stderr, "bench: client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// maxRounds keeps the plan small, which lists the cells of all rounds.
const maxRounds = 1000

// options are the flags.
type options struct {
	unit     time.Duration
	rounds   int
	seed     uint64
	cases    []benchCase
	subjects []subject
	leases   int
	lease    time.Duration // of the idle leases
	markdown string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUnusable
	}
	r, err := bench(ctx, o, stderr)
	if err == nil {
		r.writeText(stdout)
		err = write(o.markdown, r.writeMarkdown)
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUnusable
	case r.violations() > 0:
		fmt.Fprintf(stderr, "bench: two contenders held a lock at once, %d times\n", r.violations())
		return exitViolated
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{lease: lease}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.unit, "time", 400*time.Millisecond,
		"duration of a cell; up to 5 times as long for the cases of the targets")
	flags.IntVar(&o.rounds, "rounds", 6, "number of rounds; a 95 % interval needs at least six")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "seed of the order of cells and of turns")
	cases := flags.String("cases", "", "run the cases that match this regular expression")
	names := flags.String("locks", "", "run the locks that match this regular expression")
	flags.IntVar(&o.leases, "leases", 10_000, "number of idle leases to renew in one process; 0 skips this")
	quick := flags.Bool("quick", false,
		"a short trial: one round of short cells, few leases; its figures are not reliable")
	flags.StringVar(&o.markdown, "markdown", "", "write the tables in Markdown to this file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if *quick {
		o.unit, o.rounds, o.lease = 100*time.Millisecond, 1, 3*time.Second
		o.leases = min(o.leases, 500)
	}
	if o.unit <= 0 || o.leases < 0 {
		return o, errors.New("-time must be positive, and -leases not negative")
	}
	if o.rounds < 1 || o.rounds > maxRounds {
		return o, fmt.Errorf("-rounds %d: must be a number from 1 to %d", o.rounds, maxRounds)
	}
	return o, o.choose(*cases, *names)
}

// choose selects the cases and the locks that match.
func (o *options) choose(casesLike, locksLike string) error {
	likeCase, err := regexp.Compile(casesLike)
	if err != nil {
		return fmt.Errorf("-cases: %w", err)
	}
	likeLock, err := regexp.Compile(locksLike)
	if err != nil {
		return fmt.Errorf("-locks: %w", err)
	}
	o.cases = slices.DeleteFunc(slices.Clone(cases), func(c benchCase) bool { return !likeCase.MatchString(c.Name) })
	o.subjects = slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !likeLock.MatchString(s.Name) })
	if len(o.cases) == 0 || len(o.subjects) == 0 {
		return errors.New("no case matches -cases, or no lock matches -locks")
	}
	return nil
}

// bench runs all cells on one Redis.
func bench(ctx context.Context, o options, stderr io.Writer) (_ *report, err error) {
	server, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	r := &report{Redis: server.Version, Seed: o.seed, Rounds: o.rounds, Unit: o.unit}
	cells := plan(o.cases, o.subjects, o.rounds, o.seed)
	fmt.Fprintf(stderr, "%d cells, seed %d\n", len(cells), o.seed)
	for i, c := range cells {
		progress(stderr, fmt.Sprintf("%d/%d %s", i+1, len(cells), c))
		samples, err := measure(ctx, server, c, o.unit)
		if err != nil {
			return nil, err
		}
		r.Samples = append(r.Samples, samples...)
	}
	if o.leases > 0 {
		progress(stderr, fmt.Sprintf("%d idle leases", o.leases))
		if r.Idle, err = measureIdle(ctx, server, o.leases, o.lease); err != nil {
			return nil, err
		}
	}
	progress(stderr, "")
	r.Verdicts = judge(r.Samples, r.Idle)
	return r, nil
}

// progress shows what is being done in a line that is overwritten, if w is a terminal.
func progress(w io.Writer, text string) {
	file, ok := w.(*os.File)
	if !ok {
		return
	}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprint(w, "\r\x1b[K", text)
	}
}

// write writes to the named file, whose directory it makes, and nothing if the name is empty.
func write(name string, do func(io.Writer)) error {
	if name == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	do(file)
	return file.Close()
}
