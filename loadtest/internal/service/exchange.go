package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
)

// fill replaces what stands for an item, its units, the name of a sale and its buyer.
func fill(text string, item, count int64, key string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	buyer := fnv.New64a()
	buyer.Write([]byte(key))
	const exact = 1<<53 - 1 // the largest number that every reader of JSON keeps
	return strings.NewReplacer("{item}", strconv.FormatInt(item, 10), "{count}", strconv.FormatInt(count, 10),
		"{key}", key, "{buyer}", strconv.FormatUint(buyer.Sum64()&exact, 10)).Replace(text)
}

// Line returns method and path of the request that asks for what op describes.
func (d *Description) Line(op *history.Op) string {
	return d.Request.Method + " " + fill(d.Request.Path, op.GoodsID, op.Count, op.Name)
}

// AppendRequest appends the request for what op describes to a server: host is its name, and path the beginning of all
// paths. key names the sale: it has what op.Name will be.
func (d *Description) AppendRequest(text []byte, host, path, key string, op *history.Op) []byte {
	in := func(s string) string { return fill(s, op.GoodsID, op.Count, key) }
	body := in(d.Request.Body)
	if own := d.Request.Headers["Host"]; own != "" {
		host = own
	}
	text = fmt.Appendf(text, "%s %s%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n",
		d.Request.Method, path, in(d.Request.Path), host, len(body))
	header := func(name, value string) { text = fmt.Appendf(text, "%s: %s\r\n", name, value) }
	if _, own := d.Request.Headers["Content-Type"]; !own && body != "" {
		header("Content-Type", "application/json")
	}
	for name, value := range d.Request.Headers {
		if name != "Host" {
			header(name, in(value))
		}
	}
	if d.IdempotencyHeader != "" {
		header(d.IdempotencyHeader, key)
	}
	return append(append(text, "\r\n"...), body...)
}

// ReadAnswer records what an answer means.
func (d *Description) ReadAnswer(op *history.Op, status int, body []byte) {
	op.Outcome = d.outcome(status, body)
	left, told := int64(0), false
	if d.Remaining != "" {
		if text, found := field(body, d.Remaining); found {
			number, err := strconv.ParseInt(text, 10, 64)
			left, told = number, err == nil
		}
	}
	op.Remaining = left
	op.OmitsRemaining = !told && (op.Outcome == history.Sold || op.Outcome == history.SoldOut)
	if op.Outcome != history.Sold {
		op.Error = strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
	}
	if op.Outcome == history.Unknown || op.Outcome == history.Busy {
		op.Error += excerpt(body)
	}
}

// excerpt returns the beginning of a body, after a colon.
func excerpt(body []byte) string {
	const most = 120
	text := strings.Join(strings.Fields(string(body[:min(len(body), 4*most)])), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if text != "" {
		text = ": " + text
	}
	return text
}

func (d *Description) outcome(status int, body []byte) history.Outcome {
	for _, withField := range []bool{true, false} {
		for _, a := range []struct {
			Answer
			means history.Outcome
		}{{d.Sold, history.Sold}, {d.SoldOut, history.SoldOut}, {d.Refused, history.Busy}} {
			if (a.Field != "") == withField && a.fits(status, body) {
				return a.means
			}
		}
	}
	return history.Unknown
}

func (a Answer) fits(status int, body []byte) bool {
	exact := strconv.Itoa(status)
	if len(a.Status) > 0 && !slices.Contains(a.Status, exact) && !slices.Contains(a.Status, exact[:1]+"xx") {
		return false
	}
	if a.Field == "" {
		return true
	}
	value, found := field(body, a.Field)
	return found && value == a.Value
}

// field returns a field of a JSON text as text; path separates names, and indexes of lists, by dots.
func field(body []byte, path string) (value string, found bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var at any
	if decoder.Decode(&at) != nil {
		return "", false
	}
	for name := range strings.SplitSeq(path, ".") {
		switch within := at.(type) {
		case map[string]any:
			at, found = within[name]
		case []any:
			i, err := strconv.Atoi(name)
			if found = err == nil && i >= 0 && i < len(within); found {
				at = within[i]
			}
		default:
			found = false
		}
		if !found {
			return "", false
		}
	}
	switch at.(type) {
	case map[string]any, []any:
		return "", false
	case nil:
		return "null", true
	}
	return fmt.Sprint(at), true
}
