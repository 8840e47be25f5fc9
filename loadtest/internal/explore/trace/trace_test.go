package trace

import (
	"strings"
	"testing"
)

func TestNothingIsShownAfterNobodyCanGoOn(t *testing.T) {
	t.Parallel()
	o := Outcome{Steps: []Step{{Kind: Stuck, Text: "nobody can go on"}, {Actor: "A", Kind: Answers, Text: "interrupted"}}}
	if got := o.Readable().Steps; len(got) != 1 || got[0].Kind != Stuck {
		t.Errorf("the steps are %+v", got)
	}
}

func TestTheRequestsOfAScheduleComeFirst(t *testing.T) {
	t.Parallel()
	steps := []Step{{Actor: "A again"}, {}, {Actor: "B"}, {Actor: "restock"}, {Actor: "A"}, {Actor: "B"}}
	if got := strings.Join(Actors(steps), ", "); got != "A, B, A again, restock" {
		t.Errorf("the columns are %s", got)
	}
}
