package explore

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"stock/internal/contract"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/verify"
)

// damage tells kinds of damage by the figures of a verdict. The first that applies names it.
var damage = []struct {
	kind  string
	units func(verify.Verdict) int64
}{
	{trace.SoldTwice, func(v verify.Verdict) int64 { return v.Duplicates }},
	{trace.InPart, func(v verify.Verdict) int64 { return v.PartialOrders }},
	{trace.LostUpdate, func(v verify.Verdict) int64 { return v.LostUpdates }},
	{trace.Oversold, func(v verify.Verdict) int64 { return v.Oversold }},
	{trace.Leaked, func(v verify.Verdict) int64 { return v.Leaked }},
	{trace.Undersold, func(v verify.Verdict) int64 { return v.Undersold }},
	{trace.Different, func(v verify.Verdict) int64 { return v.DifferentAnswers }},
	{trace.Overlap, func(v verify.Verdict) int64 { return v.Overlaps }},
}

// kind names the damage of a verdict.
func kind(v verify.Verdict) string {
	switch v.Result {
	case verify.Correct:
		return trace.Right
	case verify.Inconclusive:
		return trace.Unjudged
	}
	for _, d := range damage {
		if d.units(v) > 0 {
			return d.kind
		}
	}
	return trace.OtherWrong
}

// damageOf names what the model found.
func damageOf(wrong error, rules contract.Rules, left []contract.Stock) string {
	m, ok := errors.AsType[*contract.MismatchError](wrong)
	if !ok {
		return trace.Unjudged
	}
	wants := func(text string) bool {
		return slices.ContainsFunc(m.Want, func(want string) bool { return strings.Contains(want, text) })
	}
	isStock := strings.HasPrefix(m.What, "stock ")
	if apart := sellsOther(rules, left); isStock && apart != "" {
		return apart
	}
	switch {
	case isStock:
		return differs(m)
	case strings.HasSuffix(m.Got, " in stock"): // what was put back is gone afterwards, or what was sold before
		return trace.Leaked
	case wants("replayed") && strings.HasSuffix(m.Got, " remain"):
		return trace.SoldTwice
	case strings.Contains(m.Got, "sold out") && wants(" remain"):
		return trace.Undersold
	case strings.HasSuffix(m.Got, " remain") && wants("sold out"):
		return trace.Oversold
	case strings.HasSuffix(m.Got, " remain") && wants(" remain"):
		return differs(m)
	}
	return trace.OtherWrong
}

// sellsOther names the damage if a store sells another number of units of an item than the one has that knows how many
// there are.
func sellsOther(rules contract.Rules, left []contract.Stock) string {
	for _, sells := range left {
		for _, knows := range left {
			switch {
			case sells.Store != rules.Store || knows.Store != rules.Through || sells.Item != knows.Item:
			case sells.Units > knows.Units:
				return trace.SellsMore
			case sells.Units < knows.Units:
				return trace.SellsLess
			}
		}
	}
	return ""
}

// differs names the damage if other numbers of units are left than there must be.
func differs(m *contract.MismatchError) string {
	got := strings.Fields(m.Got)
	for _, want := range m.Want {
		for i, right := range strings.Fields(want) {
			expected, err := strconv.ParseInt(right, 10, 64)
			if err != nil || i >= len(got) {
				break
			}
			if units, err := strconv.ParseInt(got[i], 10, 64); err == nil && units > expected {
				return trace.LostUpdate
			}
		}
	}
	return trace.Leaked
}
