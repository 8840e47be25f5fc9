package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"stock/internal/suggest"
)

// choiceText is the decision tree. The document about it is made from the same file.
//
//go:embed choose.json
var choiceText []byte

// decisions is a tree of questions, the first of which is asked first. Its leaves are strategies.
type decisions struct {
	Questions  []question
	Strategies map[string]struct{ Because, Prove string }
}

type question struct {
	Name, Ask string
	Answers   []answer
}

// answer leads to the question Next, or to the strategy Take.
type answer struct {
	Word  string // what is typed
	Means string
	Note  string // what the user should know in any case; may be empty
	Next  string
	Take  string
}

func chooseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "choose [ANSWER]...",
		Short: "Ask some questions, and name the strategy to take",
		Long: `choose asks at most ten questions, and names a strategy, why to take it, and a command that proves it.

Answers on the command line are those to the first questions. If they suffice, nothing is asked.`,
		Example: "  loadtest choose\n  loadtest choose yes mysql no none no many yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			var tree decisions
			if err := json.Unmarshal(choiceText, &tree); err != nil {
				return err
			}
			return tree.choose(args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// choose walks through the tree. It takes answers from given first, and then reads lines from in.
func (d decisions) choose(given []string, in io.Reader, out io.Writer) error {
	var words, notes []string
	lines := bufio.NewScanner(in)
	for at := d.Questions[0]; ; {
		a, err := at.answered(given, lines, out)
		if err != nil {
			return err
		}
		given = given[min(1, len(given)):]
		words = append(words, a.Word)
		if a.Note != "" {
			notes = append(notes, a.Note)
		}
		if a.Take != "" {
			if len(given) > 0 {
				return fmt.Errorf("%q answers no question: %s is the strategy before that", given[0], a.Take)
			}
			return d.advise(a.Take, words, notes, out)
		}
		at = d.Questions[slices.IndexFunc(d.Questions, func(q question) bool { return q.Name == a.Next })]
	}
}

// answered returns the first of the given answers, or asks until there is one.
func (q question) answered(given []string, lines *bufio.Scanner, out io.Writer) (answer, error) {
	if len(given) > 0 {
		return q.find(given[0])
	}
	fmt.Fprintln(out, q.Ask)
	for i, a := range q.Answers {
		fmt.Fprintf(out, "  %d  %-10s %s\n", i+1, a.Word, a.Means)
	}
	for {
		fmt.Fprint(out, "> ")
		if !lines.Scan() {
			return answer{}, errors.Join(errors.New("the answers have ended before the questions"), lines.Err())
		}
		a, err := q.find(strings.TrimSpace(lines.Text()))
		if err == nil {
			fmt.Fprintln(out)
			return a, nil
		}
		fmt.Fprintln(out, err)
	}
}

// find returns the answer that a word, or its number, stands for.
func (q question) find(word string) (answer, error) {
	var words []string
	for i, a := range q.Answers {
		if strings.EqualFold(word, a.Word) || word == strconv.Itoa(i+1) {
			return a, nil
		}
		words = append(words, a.Word)
	}
	return answer{}, fmt.Errorf("%q is no answer to %q: it must be %s%s", word, q.Ask, strings.Join(words, ", "),
		suggest.DidYouMean(word, words))
}

// advise writes what the answers lead to.
func (d decisions) advise(strategy string, words, notes []string, out io.Writer) error {
	fmt.Fprintf(out, "Take %s: %s.\n", strategy, d.Strategies[strategy].Because)
	for _, note := range notes {
		fmt.Fprintf(out, "- %s\n", note)
	}
	_, err := fmt.Fprintf(out, "\nprove it   %s\nread       docs/strategies/%s.md\nask again  loadtest choose %s\n",
		d.Strategies[strategy].Prove, strategy, strings.Join(words, " "))
	return err
}
