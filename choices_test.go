package stock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// choicesFile is the decision tree of docs/choose.md.
const choicesFile = "docs/choose.json"

// choices shows the decision tree: the questions, and what they lead to.
func choices(t *testing.T) string {
	t.Helper()
	tree := readJSON[struct {
		Questions []struct {
			Name, Ask string
			Answers   []struct{ Word, Means, Note, Next, Take string }
		}
		Strategies map[string]struct{ Because, Prove string }
	}](t, choicesFile)
	number, led := map[string]string{}, map[string]bool{tree.Questions[0].Name: true}
	for i, q := range tree.Questions {
		number[q.Name] = fmt.Sprintf("question %d", i+1)
	}
	var b strings.Builder
	b.WriteString("\n")
	row(&b, "", "question", "answer", "then")
	row(&b, "---:", "---", "---", "---")
	for i, q := range tree.Questions {
		first := []string{fmt.Sprint(i + 1), q.Ask}
		for _, a := range q.Answers {
			then := number[a.Next]
			led[a.Next], led[a.Take] = true, true
			if (a.Take == "") == (then == "") {
				t.Errorf("%s: %q leads to %q and to %q, want one of them", q.Name, a.Word, a.Next, a.Take)
			}
			if a.Take != "" {
				then = fmt.Sprintf("[`%s`](strategies/%[1]s.md)", a.Take)
			}
			row(&b, first[0], first[1], fmt.Sprintf("`%s`: %s", a.Word, a.Means), strings.TrimSpace(then+". "+a.Note))
			first = []string{"", ""}
		}
	}
	b.WriteString("\n")
	row(&b, "strategy", "because", "prove it")
	row(&b, "---", "---", "---")
	for _, name := range slices.Sorted(maps.Keys(tree.Strategies)) {
		if strategy(name) == nil {
			t.Errorf("%s names %s, which is not in the catalogue", choicesFile, name)
		}
		s := tree.Strategies[name]
		row(&b, fmt.Sprintf("[`%s`](strategies/%[1]s.md)", name), s.Because, "`"+s.Prove+"`")
	}
	b.WriteString("\n")
	delete(led, "")
	if len(led) != len(tree.Questions)+len(tree.Strategies) {
		t.Errorf("the answers of %s lead to %v, want every question and every strategy", choicesFile, led)
	}
	return b.String()
}
