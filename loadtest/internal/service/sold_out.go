package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
)

// Reply is an answer of a service.
type Reply struct {
	Status int
	Body   []byte
}

// String returns the status and the beginning of the body.
func (r Reply) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))) + excerpt(r.Body)
}

// way is two answers by which a description may tell sales from what is sold out.
type way struct{ sold, soldOut Answer }

// TellSoldOut reports whether the answers when nothing was in stock differ from those to sales, and returns the lines
// of a description that tell them apart, or none if it cannot. A field counts if all answers of a kind have the same
// value, as ids and times do not. Numbers do not count either, unless they are codes.
func (d *Description) TellSoldOut(sales, nones []Reply) (differ bool, lines string) {
	ways := differences(sales, nones)
	for _, w := range ways {
		for i, sold := range []Answer{d.Sold, w.sold} {
			described := *d
			described.Sold, described.SoldOut = sold, w.soldOut
			if !described.all(sales, history.Sold) || !described.all(nones, history.SoldOut) {
				continue
			}
			if lines = fmt.Sprintf("sold_out: %s", w.soldOut); i > 0 {
				lines = fmt.Sprintf("sold: %s\n%s", sold, lines)
			}
			return true, lines
		}
	}
	return len(ways) > 0, ""
}

// differences returns what differs between two kinds of answers: the status first.
func differences(sales, nones []Reply) (ways []way) {
	byStatus := way{statusOf(sales[0]), statusOf(nones[0])}
	if sales[0].Status != nones[0].Status {
		ways = append(ways, byStatus)
	}
	inSales, inNones := allFields(sales), allFields(nones)
	for _, name := range names(inSales[0], inNones[0]) {
		sale, found, same := common(inSales, name)
		none, foundNone, sameNone := common(inNones, name)
		if !same || !sameNone || meaning(name, sale) == meaning(name, none) {
			continue
		}
		w := byStatus
		if found && name != wholeBody {
			w.sold = Answer{Field: name, Value: sale}
		}
		if foundNone && name != wholeBody {
			w.soldOut = Answer{Field: name, Value: none}
		}
		ways = append(ways, w)
	}
	return ways
}

func statusOf(r Reply) Answer { return Answer{Status: words{strconv.Itoa(r.Status)}} }

// all reports whether all answers have the same meaning.
func (d *Description) all(replies []Reply, means history.Outcome) bool {
	return !slices.ContainsFunc(replies, func(r Reply) bool { return d.outcome(r.Status, r.Body) != means })
}

// meaning returns a value of a field without its numbers, which may be counts, times and ids. A code is all meaning.
func meaning(name, value string) string {
	if code.MatchString(name) {
		return value
	}
	return number.ReplaceAllString(value, "")
}

var (
	code   = regexp.MustCompile(`(?i)(code|status|state|result|ret|err|errno|error|success|ok)$`)
	number = regexp.MustCompile(`[0-9.+-]`)
)

// names lists the fields of two answers: those that say yes or no first, and then those that are not within others.
func names(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	rank := func(name string) int {
		if all[name] == "true" || all[name] == "false" {
			return 0
		}
		return 1 + strings.Count(name, ".")
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if by := rank(a) - rank(b); by != 0 {
			return by
		}
		return strings.Compare(a, b)
	})
}

// common returns the value of a field in the first of some answers. same is false if it has another meaning in others.
func common(answers []map[string]string, name string) (value string, found, same bool) {
	value, found = answers[0][name]
	for _, fields := range answers {
		if other, has := fields[name]; has != found || meaning(name, other) != meaning(name, value) {
			return "", false, false
		}
	}
	return value, found, true
}

func allFields(replies []Reply) (all []map[string]string) {
	for _, r := range replies {
		all = append(all, r.fields())
	}
	return all
}

// wholeBody stands for a body of which no part has a name.
const wholeBody = ""

// fields returns the fields of a body in JSON, by the names by which a description knows them.
func (r Reply) fields() map[string]string {
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.UseNumber()
	var body any
	if decoder.Decode(&body) != nil {
		return map[string]string{wholeBody: string(r.Body)}
	}
	fields := map[string]string{wholeBody: "in JSON"}
	var add func(name string, value any)
	add = func(name string, value any) {
		within := strings.TrimPrefix(name+".", ".")
		switch value := value.(type) {
		case map[string]any:
			for key, v := range value {
				add(within+key, v)
			}
		case []any:
			for i, v := range value {
				add(within+strconv.Itoa(i), v)
			}
		case nil:
			fields[name] = "null"
		default:
			fields[name] = fmt.Sprint(value)
		}
	}
	add(wholeBody, body)
	return fields
}

// String returns the answer as a description has it.
func (a Answer) String() string {
	if a.Field == "" {
		return fmt.Sprintf("{status: %s}", strings.Join(a.Status, ", "))
	}
	return fmt.Sprintf("{field: %s, value: %s}", quoted(a.Field), quoted(a.Value))
}

// quoted quotes what YAML may take for something else than a text.
func quoted(s string) string {
	if plain.MatchString(s) && !strings.EqualFold(s, "null") {
		return s
	}
	return strconv.Quote(s)
}

var plain = regexp.MustCompile(`^([A-Za-z][\w.]*|[0-9]{1,9})$`)
