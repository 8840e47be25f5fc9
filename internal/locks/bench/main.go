// Command bench compares this repository's Redis locks with the libraries that Go programs use for the same: redsync,
// redislock and rueidislock. All run interleaved, on one private Redis, and the clients are processes of their own.
//
//	make bench-locks BENCH="-cases uncontended -rounds 10"
//
// Mutual exclusion is checked while it is measured: a lock that lets two in fails the run.
//
// What is counted, and how:
//
//   - uncontended: the time of a lock and unlock of each lock by turns, op by op, in one process. One client, one key and one
//     caller a lock; its median is the time of one, and not the reciprocal of a rate.
//   - locks a second and fairness: locks that were given back within the time of a cell. Who waits when the time is over
//     waits on, and these waits count too.
//   - commands and trips: what the clients sent a lock, and in how many round trips, counted on their connections.
//   - executed: what Redis carried out, from INFO commandstats. That includes the calls that scripts make, as does
//     total_commands_processed: what clients sent cannot be told from either.
//   - Setting up connections and subscriptions (HELLO, CLIENT, SUBSCRIBE, PING) is in neither.
//   - Medians over the rounds with their 95 % intervals; the targets are judged by ratios within a round.
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
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"time"

	"stock/internal/servers"
)

// Exit statuses.
const (
	exitDone        = 0
	exitViolated    = 1 // two held a lock at once
	exitUnusable    = 2 // wrong usage, or the run could not be ended
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

// beClient makes this process a client. The memory shared with the others is its first file after stderr.
func beClient() {
	if err := client(os.Stdin, os.Stdout, os.NewFile(3, "shared memory")); err != nil {
		fmt.Fprintln(os.Stderr, "bench: client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are what the command line says.
type options struct {
	unit           time.Duration
	rounds         int
	seed           uint64
	cases          []benchCase
	subjects       []subject
	leases         int
	lease          time.Duration
	json, markdown string
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
		err = errors.Join(
			write(o.markdown, stdout, func(w io.Writer) error { r.writeMarkdown(w); return nil }),
			write(o.json, stdout, r.writeJSON),
		)
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUnusable
	case r.violations() > 0:
		fmt.Fprintf(stderr, "bench: two held a lock at once, %d times\n", r.violations())
		return exitViolated
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.unit, "time", 400*time.Millisecond, "time of a cell; the cases that targets are about take up to 5 times as long")
	flags.IntVar(&o.rounds, "rounds", 6, "how often each cell is run; six are the least that have a 95 % interval")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "of the order of cells, and of turns")
	cases := flags.String("cases", "", "run the cases that match this regular expression")
	names := flags.String("locks", "", "run the locks that match this regular expression")
	flags.IntVar(&o.leases, "leases", 10_000, "idle leases to be renewed in one process; 0 leaves that out")
	flags.DurationVar(&o.lease, "lease", lease, "of the idle leases; measured for two renewals, two thirds of that")
	quick := flags.Bool("quick", false, "a short trial: one round of short cells, few leases; its figures mean little")
	flags.StringVar(&o.json, "json", "", "write all figures to this file, - for stdout")
	flags.StringVar(&o.markdown, "markdown", "", "write the tables in Markdown to this file, - for stdout")
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
	if o.unit <= 0 || o.rounds <= 0 || o.leases < 0 || o.lease <= 0 {
		return o, errors.New("-time, -rounds and -lease have to be positive")
	}
	return o, errors.Join(o.choose(*cases, *names))
}

// choose keeps the cases and the locks that are wanted.
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
		return errors.New("no case, or no lock, matches -cases and -locks")
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

	r := &report{Redis: server.Version, Go: runtime.Version(), CPUs: runtime.NumCPU(), Seed: o.seed, Rounds: o.rounds, Unit: o.unit}
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
	r.fill()
	return r, nil
}

// progress shows what is being done, in a line that is written over; only where somebody looks on.
func progress(w io.Writer, text string) {
	file, ok := w.(*os.File)
	if !ok {
		return
	}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprint(w, "\r\x1b[K", text)
	}
}

// write writes to the file of this name, to stdout for "-", and nothing where there is no name.
func write(name string, stdout io.Writer, do func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		fmt.Fprintln(stdout)
		return do(stdout)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(do(file), file.Close())
}
