// Package suggest finds the names that a mistyped one may stand for.
package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	longest  = 64 // characters: a longer name is not a slip of the finger, and comparing it would take long
	shortest = 4  // characters: too many names contain a shorter one
	shown    = 3  // names
)

// DidYouMean returns a question to append to an error, such as `: did you mean "update"?`, if known has names close to
// the one that is not known. It is empty otherwise.
func DidYouMean(name string, known []string) string {
	names := closest(name, known)
	for i, n := range names {
		names[i] = fmt.Sprintf("%q", n)
	}
	switch last := len(names) - 1; last {
	case -1:
		return ""
	case 0:
		return ": did you mean " + names[0] + "?"
	default:
		return ": did you mean " + strings.Join(names[:last], ", ") + " or " + names[last] + "?"
	}
}

// Flag is DidYouMean for an error of parsing flags: it is empty unless there is no such flag.
func Flag(flags *pflag.FlagSet, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return DidYouMean("--"+unknown.GetSpecifiedName(), known)
}

// closest returns the known names with the fewest mistakes, or else those that contain the name.
func closest(name string, known []string) (names []string) {
	if name = normal(name); name == "" || len(name) > longest {
		return nil
	}
	fewest := 1 + len(name)/5 // mistakes that a name of this length may have
	for _, k := range known {
		switch mistakes := distance(name, normal(k)); {
		case mistakes < fewest:
			fewest, names = mistakes, []string{k}
		case mistakes == fewest:
			names = append(names, k)
		}
	}
	if len(names) == 0 && len(name) >= shortest {
		names = slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.Contains(normal(k), name) })
	}
	return names[:min(len(names), shown)]
}

// normal is the name as it is compared: case does not count, nor whether its words are joined by - or _.
func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// distance counts the letters to insert, delete, replace or swap with their neighbour that turn a into b: the optimal
// string alignment distance.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	var before, previous []int // the rows of one and two letters less of a
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(from); i++ {
		before, previous, row = previous, row, make([]int, len(to)+1)
		row[0] = i
		for j := 1; j <= len(to); j++ {
			replace := previous[j-1]
			if from[i-1] != to[j-1] {
				replace++
			}
			row[j] = min(previous[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(to)]
}
