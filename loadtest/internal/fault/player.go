package fault

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"stock/internal/suggest"
	"stock/loadtest/internal/load"
)

// Run plays each scenario for every choice to which it applies. Cells that are in doubt are played again at the end,
// unless somebody follows the steps. Run returns early, with an error, if ctx ends or Done fails. Done is not called
// for a scenario during which ctx ended.
func (p *Player) Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rounds := p.rounds(o)
	turns := make(chan struct{}, max(o.Parallel, 1))
	go func() {
		for _, r := range rounds {
			turns <- struct{}{}
			go func() {
				r.play(ctx)
				close(r.over)
				<-turns
			}()
		}
	}()
	var failure error
	var doubtful []*cell
	for _, r := range rounds {
		<-r.over // no round may go on after Run has returned
		for _, c := range r.cells {
			result := c.result()
			switch failure = cmp.Or(failure, ctx.Err()); {
			case failure != nil:
			case o.Step == nil && doubted(result):
				doubtful = append(doubtful, c)
			default:
				failure = o.Done(result, c.history)
			}
		}
		if failure != nil {
			cancel()
		}
	}
	if failure != nil {
		return failure
	}
	return p.playAgain(ctx, doubtful, o)
}

// againTime is how long cells are played again at most. Those whose turn does not come keep their first outcome.
const againTime = 5 * time.Minute

// playAgain plays cells once more, one after the other. If a fault missed, or an item was blocked although
// that is not claimed, the machine may have been too busy. A real failure shows again.
func (p *Player) playAgain(ctx context.Context, cells []*cell, o Options) error {
	for began := time.Now(); len(cells) > 0; cells = cells[1:] {
		c := cells[0]
		if time.Since(began) < againTime {
			c = p.again(c, o)
			(&round{player: p, scenario: c.scenario, cells: []*cell{c}}).play(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := o.Done(c.result(), c.history); err != nil {
			return err
		}
	}
	return nil
}

// again returns a cell that plays the same as another one, on an item of its own.
func (p *Player) again(c *cell, o Options) *cell {
	choice := load.Choice{Strategy: c.stage.Strategy, Store: c.stage.Store}
	fresh, first := p.newCell(c.scenario, choice, o, c.repeat), c.result()
	fresh.place, fresh.first = c.place, &first
	return fresh
}

// rounds lists what is to be played, in this order.
func (p *Player) rounds(o Options) (rounds []*round) {
	place := 0
	for repeat := 1; repeat <= o.Repeat; repeat++ {
		for _, sc := range o.Scenarios {
			cells := p.cells(sc, o, repeat)
			for _, c := range cells {
				place++
				c.place = place
			}
			perRound := max(len(cells), 1)
			if o.Step != nil {
				perRound = 1
			}
			for group := range slices.Chunk(cells, perRound) {
				rounds = append(rounds, &round{player: p, scenario: sc, cells: group, over: make(chan struct{})})
			}
		}
	}
	return rounds
}

// cells lists the cells of a scenario.
func (p *Player) cells(sc Scenario, o Options, repeat int) (cells []*cell) {
	for _, choice := range o.Choices {
		if sc.Applies(choice.Strategy) {
			cells = append(cells, p.newCell(sc, choice, o, repeat))
		}
	}
	return cells
}

// Cells counts the cells that Run plays.
func (p *Player) Cells(o Options) (n int) {
	for _, sc := range o.Scenarios {
		n += o.Repeat * len(p.cells(sc, o, 1))
	}
	return n
}

// families map the name of a scenario, or its part before the slash, to what plays it.
var families = []map[string]func(*Stage){
	holderPlays, crowdPlays, limitPlays, redisPlays, ghostPlays, masterPlays, rowPlays, retryPlays,
}

//go:embed scenarios.yaml
var scenarioList []byte

// Scenarios lists every scenario. To add one, add it to scenarios.yaml, and what is played to its family.
var Scenarios = readScenarios(scenarioList)

// Basic are the scenarios that mean something for every strategy. A lab plays them after its load.
var Basic = Scenarios[:3]

// readScenarios reads a list of scenarios, and finds what is played.
func readScenarios(list []byte) (scenarios []Scenario) {
	decoder := yaml.NewDecoder(bytes.NewReader(list))
	decoder.KnownFields(true)
	if err := decoder.Decode(&scenarios); err != nil {
		panic(fmt.Errorf("scenarios.yaml: %w", err))
	}
	plays := map[string]func(*Stage){}
	for _, family := range families {
		maps.Copy(plays, family)
	}
	for i := range scenarios {
		s := &scenarios[i]
		if s.Play = plays[s.Name]; s.Play == nil {
			s.Play = plays[strings.Split(s.Name, "/")[0]]
		}
		if s.Play == nil {
			panic(fmt.Sprintf("scenarios.yaml: %s has no play: add it to one of the families", s.Name))
		}
	}
	return scenarios
}

// UnmarshalText finds the servers by the name that the list of scenarios gives them.
func (s *start) UnmarshalText(name []byte) error {
	known := map[string]start{
		"one": oneRedis, "pair": redisPair, "sentinels": redisWithSentinels, "cluster": redisCluster,
		"three-masters": redlockMasters(3), "five-masters": redlockMasters(5), "three-etcd": threeEtcd,
		"three-etcd-apart": threeEtcdApart, "zookeeper": startZooKeeper,
	}
	if *s = known[string(name)]; *s == nil {
		return fmt.Errorf("no servers are named %q", name)
	}
	return nil
}

// Find returns the scenarios with the given names, in that order and each once, or all if there are no names. The part
// of a name before the slash finds all variants.
func Find(names []string) (found []Scenario, err error) {
	if len(names) == 0 {
		return Scenarios, nil
	}
	for _, name := range names {
		var all []string
		known := false
		for _, s := range Scenarios {
			all = append(all, s.Name)
			is := s.Name == name || strings.HasPrefix(s.Name, name+"/")
			known = known || is
			if is && !slices.ContainsFunc(found, func(f Scenario) bool { return f.Name == s.Name }) {
				found = append(found, s)
			}
		}
		if !known {
			return nil, fmt.Errorf("no scenario is named %q%s", name,
				cmp.Or(suggest.DidYouMean(name, all), "; the names are "+strings.Join(all, ", ")))
		}
	}
	return found, nil
}
