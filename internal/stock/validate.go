package stock

import (
	"errors"
	"fmt"
	"slices"
)

// maxIssuer is the room for a holder's issuer in MySQL, in characters.
const maxIssuer = 32

// Validate finds the rows of a catalogue that nobody could use, or that contradict themselves: rows without a name,
// summary, claim, store or constructor, with the name of another row, or with a claim that does not fit the mechanism.
func Validate(strategies []Strategy) error {
	var errs []error
	seen := map[string]bool{}
	for i, s := range strategies {
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("row %d has no name", i))
		case seen[s.Name]:
			errs = append(errs, fmt.Errorf("%s: listed twice", s.Name))
		}
		seen[s.Name] = true
		for _, rule := range rules {
			if rule.broken(s) {
				errs = append(errs, fmt.Errorf("%s: %s", s.Name, rule.message))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	return nil
}

// rules hold for every row by itself.
var rules = []struct {
	message string
	broken  func(Strategy) bool
}{
	{"has no summary or no store", func(s Strategy) bool { return s.Summary == "" || len(s.Stores) == 0 }},
	{"must have either New or Lock", func(s Strategy) bool { return (s.New == nil) == (s.Lock == nil) }},
	{"its claim is incomplete", func(s Strategy) bool { return !s.Claim.complete() }},
	{"only a lock can be fenced", func(s Strategy) bool { return s.Fenced && s.Lock == nil }},
	{"a lock must claim to refuse late holders if and only if it is fenced", func(s Strategy) bool {
		return s.Lock != nil && s.Fenced != (s.Claim.LateWrite == LateIsRefused)
	}},
	{"a lock must claim to be correct beside restocks if and only if it is fenced", func(s Strategy) bool {
		return s.Lock != nil && s.Fenced != (s.Claim.Restocked == Correct)
	}},
	{"a lock guards one number for each item, which slots and units do not have", func(s Strategy) bool {
		return s.Lock != nil && (slices.Contains(s.Stores, Slots) || slices.Contains(s.Stores, Units))
	}},
	{fmt.Sprintf("the name of a fenced strategy must have at most %d characters", maxIssuer), func(s Strategy) bool {
		return s.Fenced && len(s.Name) > maxIssuer
	}},
	{"must claim to answer a client's retry if and only if it is idempotent", func(s Strategy) bool {
		return s.Idempotent() != (s.Claim.ClientRetry == RetryRepeatsAnswer)
	}},
}

func (c Claim) complete() bool {
	effects := []fmt.Stringer{c.HolderCrash, c.HolderPause, c.LateWrite, c.ClientRetry}
	return !slices.Contains([]Behaviour{c.OneReplica, c.TwoReplicas, c.Restocked}, "") &&
		!slices.ContainsFunc(effects, func(e fmt.Stringer) bool { return e.String() == "" })
}
