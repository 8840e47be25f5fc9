package report

import "fmt"

// Contract is what came of sequences of requests that were made up, and compared with the model of the API.
type Contract struct {
	Strategy  string `json:"strategy"`
	Store     string `json:"store"`
	Sequences int    `json:"sequences"`
	// Wrong is the first wrong answer, or the first wrong stock; empty if there is none.
	Wrong string `json:"wrong,omitempty"`
	// NotJudged says why the sequences prove too little; empty if they do not.
	NotJudged string `json:"not_judged,omitempty"`
	Own       bool   `json:"own,omitempty"` // it is a service of the user's
	// Sequence is the shortest with that answer, a request in each line, and Curl has commands that send it.
	Sequence string   `json:"sequence,omitempty"`
	Curl     []string `json:"curl,omitempty"`
}

// AddContract adds what came of the sequences of a strategy.
func (b *Builder) AddContract(c Contract) { b.contract = append(b.contract, c) }

// contractProblems adds the sequences that were answered wrongly.
func (r *Report) contractProblems() {
	for _, c := range r.Contract {
		if c.NotJudged != "" {
			r.ClaimsHeld, r.Inconclusive = false, true
			r.Problems = append(r.Problems,
				fmt.Sprintf("inconclusive: contract: %s on %s: %s", c.Strategy, c.Store, c.NotJudged))
		}
		if c.Wrong == "" {
			continue
		}
		r.ClaimsHeld, r.ClaimFailed = false, true
		problem := fmt.Sprintf("claim not held: contract: %s on %s: %s", c.Strategy, c.Store, c.Wrong)
		if c.Own {
			problem = fmt.Sprintf("%s: one request after another: %s", c.Strategy, c.Wrong)
		}
		r.Problems = append(r.Problems, problem)
	}
}

// writeContract writes how many sequences were sent, and each that was answered wrongly.
func (r *Report) writeContract(out printer) {
	if len(r.Contract) == 0 {
		return
	}
	out.section("Contract")
	sent, wrong := 0, 0
	for _, c := range r.Contract {
		sent += c.Sequences
		if c.Wrong != "" {
			wrong++
		}
	}
	text := fmt.Sprintf("Made-up sequences of requests, compared with docs/http-api.md: %d. "+
		"Pairs of strategy and store: %d. Wrong: %d.", sent, len(r.Contract), wrong)
	if r.Contract[0].Own {
		text = fmt.Sprintf("Made-up sequences of requests, one after another: %d. Wrong: %d.", sent, wrong)
	}
	out.item(plain, text)
	for _, c := range r.Contract {
		if c.Wrong == "" {
			continue
		}
		out.item(red, fmt.Sprintf("%s on %s: %s", c.Strategy, c.Store, c.Wrong))
		out.code(c.Sequence)
		for _, command := range c.Curl {
			out.code(command)
		}
	}
}
