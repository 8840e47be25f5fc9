package stock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// choicesFile is the decision tree of loadtest choose.
const choicesFile = "loadtest/choose.json"

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
	number := map[string]string{}
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
	return b.String()
}
