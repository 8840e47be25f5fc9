package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Service is a service under test, with items, keys and reservations that only one script uses.
type Service interface {
	// Ask sends a request. The answer is in the words of the model, such as "7 remain, replayed", or Busy or Unknown. An
	// answer that the model cannot know, such as a malformed one, is told in other words. The answer to a request whose
	// client hangs up is Unknown.
	Ask(ctx context.Context, q Request) (answer string, err error)
	// Left reads the stock of an item in a store.
	Left(ctx context.Context, store string, item byte) (int64, error)
	// Pending reports whether sales are on their way to another store.
	Pending(ctx context.Context) (bool, error)
	// Curl returns the command that sends a request.
	Curl(q Request) string
}

// Player plays scripts on a service.
type Player struct {
	New   func() Service
	Rules map[string]Rules // see NewWorld
	// Patience is how long a request is sent again while it is refused as busy, and how long sales may be on their way to
	// another store.
	Patience time.Duration
	// Settle is how long a service may take to write a sale after its answer.
	Settle time.Duration

	asked, unknown atomic.Int64
}

// Failure is a script with a wrong answer to its last request, or after which a stock is wrong.
type Failure struct {
	Script  Script
	Answers []string
	Wrong   *MismatchError
	Curl    []string
	ended   bool // every request was answered correctly: what is wrong is a stock at the end
}

// Check plays scripts that are made up from a seed, a few at the same time. It returns the first that fails, shortened,
// or nil. An error says that they could not be judged.
func (p *Player) Check(ctx context.Context, can Can, seed uint64, scripts, atOnce int) (failed *Failure, err error) {
	var mu sync.Mutex
	playing, within := errgroup.WithContext(ctx)
	playing.SetLimit(atOnce)
	for n := range scripts {
		playing.Go(func() error {
			s := can.Generate(rand.New(rand.NewPCG(seed, uint64(n))), scriptLength)
			f, err := p.Play(within, s)
			if f == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			failed = f
			return errFound
		})
	}
	if err := playing.Wait(); failed == nil {
		return nil, err
	}
	return p.Shrink(ctx, failed), nil
}

// Proves returns an error if the outcomes of too many requests were unknown.
func (p *Player) Proves() error {
	if asked, unknown := p.asked.Load(), p.unknown.Load(); unknown*20 > asked {
		return fmt.Errorf("the outcomes of %d of %d requests are unknown", unknown, asked)
	}
	return nil
}

// errFound ends the other scripts.
var errFound = errors.New("a script has failed")

// scriptLength is the number of requests of a script, beside those that set stocks first.
const scriptLength = 25

// Play plays a script, and returns what is wrong, or nil. An error says that it could not be played.
func (p *Player) Play(ctx context.Context, s Script) (failed *Failure, err error) {
	on, w := p.New(), NewWorld(p.Rules)
	failed = &Failure{}
	now, later := p.stores()
	began := time.Now()
	for _, q := range s {
		answer, err := ask(ctx, on, q, p.Patience)
		if err != nil {
			return nil, err
		}
		p.asked.Add(1)
		if answer == Unknown && q.Manner != Leave {
			p.unknown.Add(1)
		}
		failed.Script, failed.Answers = append(failed.Script, q), append(failed.Answers, answer)
		wrong := w.Answered(q, answer)
		if wrong == nil {
			wrong = await(ctx, on, w, failed.Script, p.touched(q, now), p.Settle)
		}
		if wrong != nil {
			return failed.describe(on, cmp.Or(p.tooSlow(began), wrong))
		}
	}
	failed.ended = true
	wrong := await(ctx, on, w, failed.Script, now, p.Settle)
	if wrong != nil {
		wrong = cmp.Or(p.tooSlow(began), wrong)
	} else {
		wrong = p.awaitLater(ctx, on, w, failed.Script, later)
	}
	if wrong == nil {
		return nil, nil
	}
	return failed.describe(on, wrong)
}

// tooSlow returns an error if reservations and refusals may have ended by the service's clock, of which the model knows
// nothing. A plain service has none that end.
func (p *Player) tooSlow(began time.Time) error {
	if took := time.Since(began); took > HoldTime/2-5*time.Second && !p.Rules[""].Plain {
		return fmt.Errorf("a script took %v: what lasts for a minute may have ended meanwhile", took)
	}
	return nil
}

// touched lists those of the stores that a request may have changed. The others are compared when the script has ended.
func (p *Player) touched(q Request, stores []string) []string {
	if q.Verb == Set {
		return stores
	}
	changed := p.Rules[q.By].Stores()
	return slices.DeleteFunc(slices.Clone(stores), func(store string) bool { return !slices.Contains(changed, store) })
}

// stores lists the stores that are right when a request has been answered, and those that are right later.
func (p *Player) stores() (now, later []string) {
	for _, r := range p.Rules {
		now = append(now, r.Store, r.Through)
		later = append(later, r.Behind)
	}
	unused := func(store string) bool { return store == "" || slices.Contains(later, store) }
	slices.Sort(now)
	later = slices.DeleteFunc(later, func(store string) bool { return store == "" })
	return slices.DeleteFunc(slices.Compact(now), unused), later
}

func (f *Failure) describe(on Service, wrong error) (*Failure, error) {
	if !errors.As(wrong, &f.Wrong) {
		return nil, wrong
	}
	for _, q := range f.Script {
		f.Curl = append(f.Curl, on.Curl(q))
	}
	return f, nil
}

// ask sends a request until it is not refused as busy. That it stays busy is an error: nobody knows whether the service
// or the machine is slow.
func ask(ctx context.Context, on Service, q Request, patience time.Duration) (string, error) {
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		answer, err := on.Ask(ctx, q)
		switch err := cmp.Or(err, ctx.Err()); {
		case err != nil:
			return "", err
		case answer != Busy:
			return answer, nil
		case time.Now().After(until):
			return "", fmt.Errorf("%v is refused as busy for %v", q, patience)
		}
	}
}

// look compares the stock of each item that was set.
func look(ctx context.Context, on Service, w *World, s Script, stores []string) error {
	for _, store := range stores {
		for _, item := range s.items() {
			units, err := on.Left(ctx, store, item)
			if err != nil {
				return err
			}
			if err := w.Found(store, item, units); err != nil {
				return err
			}
		}
	}
	return nil
}

// await compares stocks until they are right or the patience is over.
func await(ctx context.Context, on Service, w *World, s Script, stores []string, patience time.Duration) error {
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := look(ctx, on, w, s, stores)
		if err == nil || time.Now().After(until) || ctx.Err() != nil {
			return err
		}
	}
}

// awaitLater compares the stocks of stores that are written to later, when nothing is on its way to them.
func (p *Player) awaitLater(ctx context.Context, on Service, w *World, s Script, stores []string) error {
	for until := time.Now().Add(p.Patience); len(stores) > 0; time.Sleep(time.Millisecond) {
		pending, err := on.Pending(ctx)
		if err != nil {
			return err
		}
		if !pending {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("sales are on their way to another store for %v", p.Patience)
		}
	}
	return look(ctx, on, w, s, stores)
}

// items lists the items whose stock was set.
func (s Script) items() (items []byte) {
	for _, q := range s {
		if q.Verb == Set && !slices.Contains(items, q.Lines[0].Item) {
			items = append(items, q.Lines[0].Item)
		}
	}
	return items
}

// Text is the script with its answers.
func (f *Failure) Text() string {
	var text strings.Builder
	for i, q := range f.Script {
		fmt.Fprintf(&text, "%-24s| %s\n", q, f.Answers[i])
	}
	return text.String()
}

// String tells the script with its answers, what is wrong after it, and how to see it with curl.
func (f *Failure) String() string {
	return fmt.Sprintf("%s%v\n\n%s\n", f.Text(), f.Wrong, strings.Join(f.Curl, "\n"))
}

// kind is the way in which the script fails: a shorter script must fail in the same way.
func (f *Failure) kind() string {
	what, _, _ := strings.Cut(f.Wrong.What, " ")
	if f.ended {
		return "end " + what
	}
	return string(f.Script[len(f.Script)-1].Verb) + " " + what
}
