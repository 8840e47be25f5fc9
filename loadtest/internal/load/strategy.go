package load

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stock/internal/contract"
	"stock/internal/suggest"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/verify"
)

// Strategy is a row of the service's catalogue, as returned by GET /strategies.
type Strategy struct {
	Name         string            `json:"name"`
	Summary      string            `json:"summary"`
	Control      bool              `json:"control"`       // wrong on purpose
	WriteBehind  bool              `json:"write_behind"`  // sells in its store, and updates MySQL afterwards
	WriteThrough bool              `json:"write_through"` // sells in its store, and updates MySQL in the same request
	Claim        Claim             `json:"claim"`
	Stores       []string          `json:"stores"`       // the first is the default
	Orders       []string          `json:"orders"`       // the stores on which it takes orders
	Reservations []string          `json:"reservations"` // the stores on which it takes reservations
	Needs        []string          `json:"needs"`
	Idempotent   bool              `json:"idempotent"`  // honours Idempotency-Key, and keeps a ledger
	Unavailable  map[string]string `json:"unavailable"` // store -> why it cannot be used here

	Own     bool `json:"-"` // it is a service of the user's, of which little is known
	OneUnit bool `json:"-"` // each request sells one unit

	ReportsRemaining *bool `json:"tells_remaining"` // its receipts report what remains; nil in an older service: they do
}

// Claim is what the catalogue promises about a strategy.
type Claim struct {
	OneReplica  string `json:"one_replica"`
	TwoReplicas string `json:"two_replicas"`
	Restocked   string `json:"restocked"` // instead of correct, if units are put back; empty in an older service: correct
	Exclusive   bool   `json:"exclusive"`

	HolderCrash string `json:"holder_crash"`
	HolderPause string `json:"holder_pause"`
	LateWrite   string `json:"late_write"`
	ClientRetry string `json:"client_retry"`
	LateCaveat  string `json:"late_caveat"` // an exception to LateWrite; usually empty
}

// ClaimFor returns the claim for a number of replicas, with or without restocking.
func (s Strategy) ClaimFor(replicas int, restocked bool) string {
	claim := s.Claim.TwoReplicas
	if replicas == 1 {
		claim = s.Claim.OneReplica
	}
	if restocked && claim == verify.ClaimCorrect && s.Claim.Restocked != "" {
		return s.Claim.Restocked
	}
	return claim
}

// Fenced reports whether the store checks the tokens of the strategy's lock, so that each sale has one. The late write
// of a holder is refused only then, or if it is optimistic, and nobody waits for its lock.
func (s Strategy) Fenced() bool {
	return s.Claim.LateWrite == "refused" && s.Claim.HolderCrash == "blocks-until-lease-ends"
}

// Baseline reports whether the strategy deducts nothing: it measures everything but the store.
func (s Strategy) Baseline() bool { return s.Claim.OneReplica == verify.ClaimSellsNothing }

// Durable returns the store in which a sale is durable, if the strategy runs on the given one.
func (s Strategy) Durable(store string) string {
	if s.WriteBehind || s.WriteThrough {
		return oracle.MySQL
	}
	return store
}

// OmitsRemaining reports whether the strategy's receipts do not say what remains.
func (s Strategy) OmitsRemaining() bool { return s.ReportsRemaining != nil && !*s.ReportsRemaining }

// Choice is a strategy and the store that it runs on.
type Choice struct {
	Strategy Strategy
	Store    string
}

// Rules returns what the strategy promises on its store.
func (c Choice) Rules() contract.Rules {
	s := c.Strategy
	r := contract.Rules{
		Store: c.Store, Remaining: !s.OmitsRemaining(), Oversells: s.Claim.OneReplica == verify.ClaimOversells,
		Meets:  s.ClaimFor(2, true) == verify.ClaimCorrect && !s.WriteThrough,
		Orders: slices.Contains(s.Orders, c.Store),
		Holds:  slices.Contains(s.Reservations, c.Store),
	}
	if s.Idempotent {
		r.Keys = oracle.MySQL
		if c.Store == oracle.Redis {
			r.Keys = oracle.Redis
		}
	}
	if s.WriteBehind {
		r.Behind = oracle.MySQL
	}
	if s.WriteThrough {
		r.Through = oracle.MySQL
	}
	return r
}

// IsIn reports whether the strategy is one of those that are named.
func (s Strategy) IsIn(names []string) bool {
	return slices.Contains(names, s.Name)
}

// CheckNames returns an error for a name that is not that of a strategy. It suggests one that is close, or lists all.
func CheckNames(names []string, catalogue []Strategy) error {
	var known []string
	for _, s := range catalogue {
		known = append(known, s.Name)
	}
	for _, name := range names {
		isNow := func(s Strategy) bool { return s.IsIn([]string{name}) }
		if !slices.Contains(known, name) && !slices.ContainsFunc(catalogue, isNow) {
			return fmt.Errorf("no strategy is named %q%s", name,
				cmp.Or(suggest.DidYouMean(name, known), "; the names are "+strings.Join(known, ", ")))
		}
	}
	return nil
}

// Choose picks the strategies to run from the catalogue: those with the given names, or all if names is empty; on the
// given store, or each on its default store if store is empty. It always includes the baseline, for comparison. It
// leaves out strategies that cannot run here and returns the reasons. If such a strategy was named, Choose returns an
// error.
func Choose(catalogue []Strategy, names []string, store string) (choices []Choice, leftOut []string, err error) {
	if err := CheckNames(names, catalogue); err != nil {
		return nil, nil, err
	}
	for _, s := range catalogue {
		named := s.IsIn(names)
		if len(names) > 0 && !named && !s.Baseline() {
			continue
		}
		on, why := s.on(store)
		switch {
		case why == "":
			choices = append(choices, Choice{s, on})
		case named:
			return nil, nil, fmt.Errorf("strategy %s cannot run here: %s", s.Name, why)
		default:
			leftOut = append(leftOut, s.Name+": "+why)
		}
	}
	if len(choices) == 0 {
		return nil, nil, fmt.Errorf("no strategy can run here: %s", strings.Join(leftOut, "; "))
	}
	return choices, leftOut, nil
}

// OnEveryStore returns the strategy on each store that can be used here, its default store first.
func (s Strategy) OnEveryStore() (choices []Choice) {
	for _, store := range s.Stores {
		if s.Unavailable[store] == "" {
			choices = append(choices, Choice{s, store})
		}
	}
	return choices
}

// on returns the store to run on, or why there is none.
func (s Strategy) on(store string) (on, why string) {
	switch {
	case len(s.Stores) == 0:
		return "", "it works on no store"
	case store == "" || s.Baseline():
		on = s.Stores[0]
	case slices.Contains(s.Stores, store):
		on = store
	default:
		return "", fmt.Sprintf("it works on %s, not on %s", strings.Join(s.Stores, " and "), store)
	}
	return on, s.Unavailable[on]
}
