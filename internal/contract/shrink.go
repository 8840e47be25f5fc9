package contract

import (
	"context"
	"slices"
	"time"
)

// Shrink returns a script that fails in the same way as f, and from which no request can be left out, as f cannot be
// simplified further. A simpler script counts only if it fails twice. If time runs out, it returns the simplest so far.
func (p *Player) Shrink(ctx context.Context, f *Failure) *Failure {
	p = &Player{
		New: p.New, Rules: p.Rules,
		Patience: min(p.Patience, 10*time.Second), Settle: min(p.Settle, time.Second),
	}
	for simpler := true; simpler; {
		simpler = false
		for _, s := range f.Script.simpler() {
			if next := p.failsTwice(ctx, s, f.kind()); next != nil {
				f, simpler = next, true
				break
			}
		}
	}
	return f
}

func (p *Player) failsTwice(ctx context.Context, s Script, kind string) (failed *Failure) {
	for range 2 {
		f, err := p.Play(ctx, s)
		if err != nil || f == nil || f.kind() != kind {
			return nil
		}
		failed = f
	}
	return failed
}

// simpler lists scripts that are a little simpler: without some requests, the longest gaps first, and then with
// requests that say less.
func (s Script) simpler() (all []Script) {
	for gap := len(s) / 2; gap > 0; gap /= 2 {
		for from := 0; from+gap <= len(s); from += gap {
			all = append(all, slices.Delete(slices.Clone(s), from, from+gap))
		}
	}
	for i, q := range s {
		for _, plain := range q.plainer() {
			changed := slices.Clone(s)
			changed[i] = plain
			all = append(all, changed)
		}
	}
	return all
}

// plainer lists the request with one thing less.
func (q Request) plainer() (all []Request) {
	add := func(change func(*Request)) {
		plain := q
		plain.Lines = slices.Clone(q.Lines)
		change(&plain)
		if plain.String() != q.String() {
			all = append(all, plain)
		}
	}
	add(func(p *Request) { p.Manner = "" })
	add(func(p *Request) { p.By = "" })
	add(func(p *Request) { p.Replica = 0 })
	if q.Verb == Sell && q.Manner != Leave || q.Verb == Order {
		add(func(p *Request) { p.Key = "" }) // without it, a repeated hold would be another one with the same name
	}
	if q.Verb == Hold {
		add(func(p *Request) { p.Time = 0 })
	}
	for i := range q.Lines {
		if len(q.Lines) > 1 {
			add(func(p *Request) { p.Lines = slices.Delete(p.Lines, i, i+1) })
		}
		add(func(p *Request) { p.Lines[i].Count = 1 })
	}
	return all
}
