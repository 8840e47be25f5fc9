package explore

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/verify"
)

// WithKey are requests that have cells of their own.
const WithKey = "with a key"

// InARace are the requests of a race that was made up, or is the user's.
const InARace = "in a race"

// cells are what schedules led to, by cellName.
type cells map[string]*trace.Cell

// cellName names the cell of some faults, with requests that are special.
func cellName(special, faults string) string {
	if special == "" {
		return faults // scripts have no others
	}
	return faults + "@" + special
}

func newCell(special, faults string) *trace.Cell {
	return &trace.Cell{Fault: faults, Requests: special, Kinds: map[string]int{}, Shortest: map[string]trace.Schedule{}}
}

// collect adds a schedule, whose requests may be special.
func (all cells) collect(special string, s trace.Schedule) {
	faults := strings.Join(s.Execution.Faults, "+")
	name := cellName(special, faults)
	c := all[name]
	if c == nil {
		c = newCell(special, faults)
		all[name] = c
	}
	c.Schedules++
	c.Kinds[s.Execution.Kind]++
	if s.Execution.Waited {
		c.Waited++
	}
	if best, found := c.Shortest[s.Execution.Kind]; s.Execution.Kind != trace.Right && (!found || shorter(s, best)) {
		c.Shortest[s.Execution.Kind] = s
	}
}

// shorter reports whether a schedule is easier to read than another one.
func shorter(s, o trace.Schedule) bool {
	return cmp.Or(cmp.Compare(s.Preemptions, o.Preemptions), cmp.Compare(len(s.Execution.Steps), len(o.Execution.Steps)),
		cmp.Compare(s.Token, o.Token)) < 0
}

func (all cells) schedules() (n int) {
	for _, c := range all {
		n += c.Schedules
	}
	return n
}

// judged returns the cells in their order, as they are now, compared with what is claimed.
func (all cells) judged(claims claims, exhausted bool) (list []trace.Cell) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := *all[name]
		c.Kinds, c.Shortest = maps.Clone(c.Kinds), maps.Clone(c.Shortest)
		claims.judge(&c, exhausted && c.Kinds[trace.Unjudged] == 0)
		list = append(list, c)
	}
	return list
}

// refuted reports whether a claim is refuted already.
func (all cells) refuted(claims claims) bool {
	return slices.ContainsFunc(all.judged(claims, false), func(c trace.Cell) bool { return !c.Held })
}

// claims are what must come of the schedules of a strategy, or of a script.
type claims interface {
	// judge compares a cell with what is claimed. A claim that something happens is refuted only if the cell is complete,
	// because every schedule was executed and judged, and none shows it.
	judge(c *trace.Cell, complete bool)
	// settled reports whether no more schedules are needed in which these faults strike. The requests may be special.
	settled(all cells, special, faults string) bool
}

// ofStrategy are the claims of the catalogue, or what is expected of a user's service.
type ofStrategy struct {
	load.Strategy
	own bool // it is a user's service
}

// expects returns what the catalogue claims about schedules in which a fault strikes, in words, and whether some of
// them must do damage. The words are empty if it claims nothing. requests is that of a Cell.
func (s ofStrategy) expects(requests, faults string) (words string, must bool) {
	claim := s.ClaimFor(2, false)
	if requests != "" && claim != verify.ClaimCorrect {
		return "", false // two requests with the same key do no damage
	}
	if faults != "" && claim != verify.ClaimCorrect {
		return "", false
	}
	switch faults {
	case "":
		return claim, claim != verify.ClaimCorrect
	case StockSet:
		if s.keepsStocksApart() {
			return "keeps stocks apart", false
		}
	case TimeOver:
		return claim, false
	case LeaseEnds:
		return s.Claim.LateWrite, s.Claim.LateWrite == verify.ClaimLosesUpdates
	case SentAgain:
		retry := s.Claim.ClientRetry
		if s.Idempotent && requests != WithKey && !s.own {
			retry = deductsAgain
		}
		return retry, retry == deductsAgain
	case Restocked:
		claim = s.ClaimFor(2, true)
		return claim, claim != verify.ClaimCorrect
	case LostRequest, LostReply, ReplicaDies:
		return s.Claim.HolderCrash, false
	}
	return "", false
}

// deductsAgain is what a strategy without keys claims of a request that is sent again, and what any strategy does with
// one that has no key.
const deductsAgain = "deducts-again"

// keepsStocksApart reports whether it is claimed that what was not done for a stock does not change a later one:
// sales on their way to MySQL, and units that are held.
func (s ofStrategy) keepsStocksApart() bool { return s.WriteBehind || len(s.Reservations) > 0 }

// judge implements claims.
func (s ofStrategy) judge(c *trace.Cell, complete bool) {
	words, must := s.expects(c.Requests, c.Fault)
	c.Claim, c.Shown = words, must && c.Damaged() > 0
	c.Held = must == (c.Damaged() > 0) || must && !complete
	switch words {
	case "", "blocks-forever":
		c.Held = true
	case "loses-units":
		allowed := []string{trace.Right, trace.Unjudged, trace.Leaked, trace.Undersold, trace.SellsLess}
		c.Held = !slices.ContainsFunc(slices.Collect(maps.Keys(c.Kinds)), func(kind string) bool {
			return !slices.Contains(allowed, kind)
		})
	case "harmless", "rolls-back", "unlocks":
		c.Held = c.Held && c.Waited == 0
	case "blocks-until-lease-ends":
		c.Held = c.Held && (c.Waited > 0 || !complete || c.Fault != ReplicaDies || c.Requests == InARace)
	}
	if s.own {
		c.Claim = "" // it has made none
	}
}

// settled implements claims: some damage was found, and the claim is one of damage, or nothing is claimed, or there is
// damage even without a fault.
func (s ofStrategy) settled(all cells, special, faults string) bool {
	if c := all[cellName(special, "")]; c != nil && faults != "" && c.Damaged() > 0 {
		return true
	}
	words, must := s.expects(special, faults)
	c := all[cellName(special, faults)]
	return c != nil && (must || words == "") && c.Damaged() > 0
}

// ofScript is what a script expects, by fault. What it does not name must be right.
type ofScript map[string]string

// wants returns what is expected of a fault, or of none.
func (s ofScript) wants(fault string) string { return cmp.Or(s[fault], trace.Right) }

// judge implements claims. Nothing is expected of faults that strike what is broken without them, or with one of them.
func (s ofScript) judge(c *trace.Cell, complete bool) {
	_, named := s[c.Fault]
	broken := func(fault string) bool { return s.wants(fault) != trace.Right }
	if !named && (broken("") || slices.ContainsFunc(strings.Split(c.Fault, "+"), broken)) {
		c.Held = true
		return
	}
	if c.Claim = s.wants(c.Fault); c.Claim == trace.Right {
		c.Held = c.Damaged() == 0
	} else {
		c.Shown = c.Kinds[c.Claim] > 0
		c.Held = c.Shown || !complete
	}
}

// settled implements claims: what the script expects was found. Without a fault, all schedules are executed
// nevertheless, unless each one takes a while.
func (s ofScript) settled(all cells, _, faults string) bool {
	found := func(fault string) bool {
		want := s.wants(fault)
		return want != trace.Right && all[fault] != nil && all[fault].Kinds[want] > 0
	}
	return found("") && (faults != "" || s.wants("") == trace.Deadlock) || faults != "" && found(faults)
}
