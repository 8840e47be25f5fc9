package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
)

func readTree(t *testing.T) (tree decisions) {
	t.Helper()
	must.Succeed(t, json.Unmarshal(choiceText, &tree))
	return tree
}

func TestEveryAnswerLeadsToAStrategy(t *testing.T) {
	t.Parallel()
	tree := readTree(t)
	asked, taken := map[string]bool{}, map[string]bool{}
	var walk func(q question, words []string)
	walk = func(q question, words []string) {
		asked[q.Name] = true
		if len(words) >= 10 {
			t.Fatalf("more than ten questions: %q", words)
		}
		for _, a := range q.Answers {
			path := append(slices.Clone(words), a.Word)
			next := slices.IndexFunc(tree.Questions, func(q question) bool { return q.Name == a.Next })
			switch {
			case (a.Take == "") == (a.Next == ""):
				t.Errorf("%q leads to %q and to %q, want one of them", path, a.Take, a.Next)
			case a.Take == "" && next < 0:
				t.Errorf("%q leads to the question %q, which is not there", path, a.Next)
			case a.Take == "":
				walk(tree.Questions[next], path)
			default:
				taken[a.Take] = true
				var out bytes.Buffer
				if err := tree.choose(path, strings.NewReader(""), &out); err != nil {
					t.Errorf("%q: %v", path, err)
				}
				if want := "Take " + a.Take + ": "; !strings.HasPrefix(out.String(), want) {
					t.Errorf("%q was answered\n%s\nwant %q first", path, &out, want)
				}
			}
		}
	}
	walk(tree.Questions[0], nil)
	if len(asked) != len(tree.Questions) || len(tree.Questions) > 10 || len(taken) != len(tree.Strategies) {
		t.Errorf("%d of %d questions are asked, and lead to %d of %d strategies",
			len(asked), len(tree.Questions), len(taken), len(tree.Strategies))
	}
	for name := range taken {
		if s := tree.Strategies[name]; s.Because == "" || !strings.HasPrefix(s.Prove, "go run ./loadtest ") {
			t.Errorf("%s has no reason or no command: %+v", name, s)
		}
	}
}

func TestChooseAsksUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Succeed(t, readTree(t).choose([]string{"yes"}, strings.NewReader("oracle\nMYSQL\n1\n"), &out))
	for _, want := range []string{
		`"oracle" is no answer to "Where is the stock?"`, "Take reserve: ", "loadtest choose yes mysql yes\n",
		"docs/strategies/reserve.md", "Idempotency-Key",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

func TestChooseRefusesAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, in, want string }{
		{"yes msyql", "", `did you mean "mysql"?`},
		{"yes redis books now", "", `"now" answers no question`},
		{"yes", "mysql\n", "the answers have ended"},
	} {
		err := readTree(t).choose(strings.Fields(c.given), strings.NewReader(c.in), &bytes.Buffer{})
		if !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%q: %v, want %q", c.given, err, c.want)
		}
	}
}
