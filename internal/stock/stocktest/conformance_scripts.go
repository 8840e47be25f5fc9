package stocktest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"stock/internal/stock"
)

// script is a test that sends one request after the other, to one replica and to the other in turn. The items are a, b
// and so on; other letters are items that do not exist.
type script struct {
	name  string
	units []int64 // of each item
	// steps has a line for each request: what is asked, the answer, and the units that are left of each item.
	//
	//	sell 3 k          3 units of item a, with the key k
	//	work sell 3       a request with work to do in the critical section
	//	try sell 3        a request that does not wait
	//	order 1a,2b k     an order
	//	cancel k          the sale with the key k; cancel k 2: 2 units of its only item; cancel k 1a,2b: of several
	//	look k            reads the sale; its lines are units sold/cancelled/given back
	//	set 10, restock 5 item a
	//	hold 3 x k        the reservation x, of 3 units
	//	find x, confirm x, release x; lapse x lets its time pass
	steps string
}

// sales test every strategy, and either refusals or overselling.
var (
	sales = []script{
		{"sells the last unit", []int64{3}, `
			sell 2 | 1 remain | 1
			sell 1 | 0 remain | 0`},
		{"refuses an unknown item, and does not remember it", nil, `
			sell 1u | unknown item |
			sell 1u | unknown item |
			set 3u  |              |
			sell 1u | 2 remain     |`},
		{"sells to a request that does not wait, if the item is free", []int64{4}, `
			try sell 1 | 3 remain | 3
			try sell 1 | 2 remain | 2`},
	}
	refusals = []script{
		{"refuses more than is left", []int64{4}, `
			sell 5 | sold out at 4 | 4`},
	}
	overselling = []script{
		{"sells below zero", []int64{1}, `
			sell 1    | 0 remain  | 0
			sell 1    | -1 remain | -1
			sell 1    | -2 remain | -2
			restock 1 |           | -1
			restock 3 |           | 2`},
	}
)

// keyScripts test strategies that keep keys, and firstKeyScripts those that keep them in a way of their own.
var (
	keyScripts = []script{
		{"replays a sale on the other replica", []int64{10}, `
			sell 3 k      | 7 remain           | 7
			sell 1        | 6 remain           | 6
			work sell 3 k | 7 remain, replayed | 6
			sell 3 k      | 7 remain, replayed | 6`},
		{"replays sold out although the item was restocked", []int64{2}, `
			sell 3 k | sold out at 2           | 2
			set 10   |                         | 10
			sell 3 k | sold out at 2, replayed | 10
			sell 3 k | sold out at 2, replayed | 10`},
		{"gives units back once", []int64{10}, `
			sell 3 k | 7 remain                  | 7
			look k   | sold 3/0/0                | 7
			sell 1   | 6 remain                  | 6
			cancel k | cancelled 3/3/3           | 9
			cancel k | cancelled 3/3/3, replayed | 9
			cancel k | cancelled 3/3/3, replayed | 9
			look k   | cancelled 3/3/3           | 9
			sell 3 k | cancelled, replayed       | 9
			sell 3 k | cancelled, replayed       | 9
			sell 9   | 0 remain                  | 0`},
	}
	firstKeyScripts = []script{
		{"replays the sale of the last units", []int64{3}, `
			sell 3 k | 0 remain           | 0
			sell 3 k | 0 remain, replayed | 0
			sell 3 k | 0 remain, replayed | 0`},
		{"refuses a key that was used for another request", []int64{10, 10}, `
			sell 3 k   | 7 remain   | 7 10
			sell 2 k   | key reused | 7 10
			sell 3b k  | key reused | 7 10
			sell 100 k | key reused | 7 10`},
		{"deducts for every request without a key", []int64{10}, `
			sell 3 | 7 remain | 7
			sell 3 | 4 remain | 4`},
		{"accepts the key of a request for an unknown item", nil, `
			sell 1u k | unknown item       |
			set 10u   |                    |
			sell 1u k | 9 remain           |
			sell 1u k | 9 remain, replayed |`},
		{"cancels a part, and then the rest", []int64{10}, `
			sell 5 k   | 5 remain                  | 5
			cancel k 2 | sold 5/2/2                | 7
			sell 5 k   | 5 remain, replayed        | 7
			cancel k 2 | sold 5/2/2, replayed      | 7
			cancel k 1 | sold 5/2/2, replayed      | 7
			cancel k 4 | sold 5/4/4                | 9
			cancel k 3 | sold 5/4/4, replayed      | 9
			sell 5 k   | 5 remain, replayed        | 9
			cancel k   | cancelled 5/5/5           | 10
			sell 5 k   | cancelled, replayed       | 10
			sell 5 k   | cancelled, replayed       | 10
			sell 5 l   | 5 remain                  | 5
			cancel l 5 | cancelled 5/5/5           | 10
			sell 5 l   | cancelled, replayed       | 10`},
		{"cancels no more than was sold", []int64{10, 10}, `
			sell 3 k         | 7 remain       | 7 10
			cancel k 4a      | more than sold | 7 10
			cancel k 1000000 | more than sold | 7 10
			cancel k 1b      | more than sold | 7 10
			cancel k 1a,1b   | more than sold | 7 10
			look k           | sold 3/0/0     | 7 10`},
		{"gives back no more than a stock can have", []int64{10}, `
			sell 4 k                 | 6 remain                | 6
			restock 9007199254740985 |                         | 9007199254740991
			cancel k                 | overstocked             | 9007199254740991
			sell 4 l                 | 9007199254740987 remain | 9007199254740987
			cancel k                 | cancelled 4/4/4         | 9007199254740991`},
		{"sells nothing for a key that was cancelled before", []int64{10}, `
			cancel k   | never-sold           | 10
			cancel k   | never-sold, replayed | 10
			sell 3 k   | cancelled, replayed  | 10
			sell 3 k   | cancelled, replayed  | 10
			cancel k 2 | never-sold, replayed | 10
			cancel l   | never-sold           | 10
			sell 100 l | cancelled, replayed  | 10
			sell 100 l | cancelled, replayed  | 10`},
		{"cancels a part of nothing", []int64{10}, `
			cancel k 1 | unknown sale | 10
			look k     | unknown sale | 10
			sell 3 k   | 7 remain     | 7`},
		{"sells nothing for a key whose refusal was cancelled", []int64{2}, `
			sell 3 k   | sold out at 2        | 2
			look k     | refused              | 2
			cancel k 1 | more than sold       | 2
			cancel k   | never-sold           | 2
			cancel k   | never-sold, replayed | 2
			set 10     |                      | 10
			sell 3 k   | cancelled, replayed  | 10
			sell 3 k   | cancelled, replayed  | 10`},
		{"gives nothing back to a stock that was set since", []int64{10}, `
			sell 5 k   | 5 remain                  | 5
			cancel k 2 | sold 5/2/2                | 7
			set 100    |                           | 100
			cancel k   | cancelled 5/5/2           | 100
			cancel k   | cancelled 5/5/2, replayed | 100
			sell 5 k   | cancelled, replayed       | 100`},
	}
)

// orderScripts test strategies that take orders, keyedOrderScripts those that keep keys, too, and firstOrderScripts
// those that keep them in a way of their own.
var (
	orderScripts = []script{
		{"confirms every line of an order", []int64{10, 10}, `
			order 1b,2a,3b | 8 6 remain | 8 6`},
		{"deducts nothing for an order whose last line is sold out", []int64{10, 10, 1}, `
			order 2c,1a,1b | c: sold out at 1 | 10 10 1`},
		{"deducts nothing for an order whose last line is unknown", []int64{10}, `
			order 1u,1a | u: unknown item | 10`},
		{"carries out an order that does not wait, if the items are free", []int64{4, 4}, `
			try order 1a,1b | 3 3 remain | 3 3`},
	}
	keyedOrderScripts = []script{
		{"replays an order on the other replica", []int64{10, 20}, `
			order 2b,1a,3b k | 9 15 remain           | 9 15
			sell 1           | 8 remain              | 8 15
			order 3b,1a,2b k | 9 15 remain, replayed | 8 15
			order 3b,2b,1a k | 9 15 remain, replayed | 8 15`},
	}
	firstOrderScripts = []script{
		{"replays the refusal of an order", []int64{10, 1}, `
			order 2a,2b k | b: sold out at 1           | 10 1
			set 10b       |                            | 10 10
			order 2a,2b k | b: sold out at 1, replayed | 10 10
			order 2a,2b k | b: sold out at 1, replayed | 10 10`},
		{"refuses a key that was used for another order", []int64{10, 10}, `
			order 1a,1b k | 9 9 remain | 9 9
			order 1a k    | key reused | 9 9
			order 1b k    | key reused | 9 9
			order 1a,2b k | key reused | 9 9
			sell 1 k      | key reused | 9 9
			sell 1 l      | 8 remain   | 8 9
			order 1a l    | key reused | 8 9`},
		{"cancels an order, and lines of it", []int64{10, 10}, `
			order 2a,3b k  | 8 7 remain                      | 8 7
			cancel k 1     | more than sold                  | 8 7
			cancel k 1b    | sold 2/0/0 3/1/1                | 8 8
			cancel k 1b    | sold 2/0/0 3/1/1, replayed      | 8 8
			order 2a,3b k  | 8 7 remain, replayed            | 8 8
			cancel k 1b,2a | sold 2/2/2 3/1/1                | 10 8
			cancel k 1b,2a | sold 2/2/2 3/1/1, replayed      | 10 8
			order 2a,3b k  | 8 7 remain, replayed            | 10 8
			cancel k       | cancelled 2/2/2 3/3/3           | 10 10
			cancel k       | cancelled 2/2/2 3/3/3, replayed | 10 10
			order 2a,3b k  | cancelled, replayed             | 10 10`},
		{"sells nothing for an order that was cancelled before", []int64{10, 10}, `
			cancel k      | never-sold          | 10 10
			order 1a,1b k | cancelled, replayed | 10 10
			order 1a,1b k | cancelled, replayed | 10 10`},
	}
)

func (s subject) play(t *testing.T, scripts []script) {
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			p := player{subject: s, items: map[byte]int64{}, held: map[string]stock.ReservationID{}}
			for i, units := range c.units {
				p.items['a'+byte(i)] = s.newItem(t, units)
			}
			for i, step := range strings.Split(strings.TrimSpace(c.steps), "\n") {
				column := strings.Split(step, "|")
				for i := range column {
					column[i] = strings.TrimSpace(column[i])
				}
				words, ctx := strings.Fields(column[0]), patient(t)
				if words[0] == "try" {
					words, ctx = words[1:], stock.LimitWait(ctx, 0)
				}
				if got := p.ask(ctx, t, i%2, words); got != s.told(column[1]) {
					t.Errorf("step %d, %s: %s, want %s", i+1, column[0], got, s.told(column[1]))
				}
				if strings.HasSuffix(column[1], "unknown item") {
					wantNoTrace(t, s.replicas[0].service.deps, p.items['u'])
				}
				for i, left := range strings.Fields(column[2]) {
					s.wantLeft(t, p.items['a'+byte(i)], number(left))
				}
			}
			for i := range c.units {
				id := p.items['a'+byte(i)]
				s.wantLeftInMySQL(t, id, s.left(t, id))
			}
		})
	}
}

var toldRemaining = regexp.MustCompile(`^-?\d+ remain`)

// told is an answer of a script as the strategy gives it: some do not know what remains.
func (s subject) told(answer string) string {
	if s.strategy.TellsRemaining() {
		return answer
	}
	return toldRemaining.ReplaceAllString(answer, "0 remain")
}

// player plays the steps of a script.
type player struct {
	subject
	items map[byte]int64                 // by letter
	held  map[string]stock.ReservationID // by name
}

// item returns the item of a letter.
func (p player) item(letter byte) int64 {
	if p.items[letter] == 0 {
		p.items[letter] = NewItem()
	}
	return p.items[letter]
}

// lines reads units of items, such as "1a,2b". The item is the given one if there is no letter.
func (p player) lines(words string, item int64) (lines []stock.Line) {
	for word := range strings.SplitSeq(words, ",") {
		line := stock.Line{GoodsID: item}
		if letter := word[len(word)-1]; letter >= 'a' {
			line.GoodsID, word = p.item(letter), word[:len(word)-1]
		}
		line.Count = int(number(word))
		lines = append(lines, line)
	}
	return lines
}

func number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err) // the script is wrong
	}
	return n
}

// ask sends a request to a replica, and describes the answer.
func (p player) ask(ctx context.Context, t *testing.T, replica int, words []string) string {
	t.Helper()
	works := words[0] == "work"
	if works {
		words = words[1:]
	}
	verb, words := words[0], words[1:]
	service, d := p.replicas[replica].service, p.replicas[replica].deducter
	key := func(word string) string { return p.key(p.items['a']) + " " + word }
	switch verb {
	case "set", "restock":
		line := words[0]
		item := p.items['a']
		if letter := line[len(line)-1]; letter >= 'a' {
			item, line = p.item(letter), line[:len(line)-1]
		}
		if verb == "set" {
			service.Set(t, item, number(line))
		} else if _, err := service.Restock(ctx, p.store, item, number(line)); err != nil {
			t.Fatal(err)
		}
		return ""
	case "look":
		sale, err := d.(stock.Canceller).Sale(ctx, stock.SaleID{Key: key(words[0])})
		return describeSale(sale, err)
	case "cancel":
		req := stock.CancelRequest{SaleID: stock.SaleID{Key: key(words[0])}}
		if len(words) > 1 {
			req.Lines = p.lines(words[1], 0)
		}
		return describeSale(d.(stock.Canceller).CancelSale(ctx, req))
	case "find", "confirm", "release":
		return p.reservation(ctx, t, replica, verb, words[0])
	case "lapse":
		p.lapse(ctx, t, words[0])
		return ""
	}
	lines, words := p.lines(words[0], p.items['a']), words[1:]
	var name string // of a reservation
	if verb == "hold" {
		name, words = words[0], words[1:]
	}
	var req stock.Request
	if works {
		req = WithWork(req)
	}
	if len(words) > 0 {
		req.Key = key(words[0])
	}
	if verb == "order" {
		return p.describeOrder(ctx, t, keyedOrder(t, req.Key, lines...), replica)
	}
	req.GoodsID, req.Count = lines[0].GoodsID, lines[0].Count
	if verb == "hold" {
		return p.hold(ctx, t, replica, name, req)
	}
	receipt, err := RetryRefusals(ctx, d, req)
	soldOut, ok := errors.AsType[*stock.SoldOutError](err)
	if ok && (soldOut.GoodsID != req.GoodsID || soldOut.Asked != req.Count) {
		t.Errorf("%+v is refused with %+v", req, soldOut)
	}
	retried := receipt.Attempts != 1 && p.strategy.TellsRemaining()
	if err == nil && (retried || receipt.Waited < 0 || receipt.Held < 0 ||
		receipt.Held != time.Duration(receipt.Left-receipt.Entered)) {
		t.Errorf("the receipt should tell of one attempt, and its times contradict each other: %+v", receipt)
	}
	return Answer{receipt, err}.String()
}

// describeSale describes what became of a sale, or why that is not known.
func describeSale(sale stock.Sale, err error) string {
	words := []string{Answer{Err: err}.String()}
	if err == nil {
		words[0] = string(sale.State)
		for _, line := range sale.Lines {
			words = append(words, fmt.Sprintf("%d/%d/%d", line.Count, line.Cancelled, line.GivenBack))
		}
		if sale.Replayed {
			words[len(words)-1] += ", replayed"
		}
	}
	return strings.Join(words, " ")
}

// describeOrder sends an order, and describes the answer: what remains of each item, or the item to blame.
func (p player) describeOrder(ctx context.Context, t *testing.T, req stock.OrderRequest, replica int) string {
	t.Helper()
	receipt, err := p.sendOrder(ctx, replica, req)
	if blamed, ok := errors.AsType[*stock.LineError](err); ok {
		for letter, id := range p.items {
			if id == blamed.GoodsID {
				return string(letter) + ": " + Answer{receipt.Receipt, blamed.Err}.String()
			}
		}
	}
	if err != nil {
		return Answer{receipt.Receipt, err}.String()
	}
	var remaining []string
	for i, line := range receipt.Lines {
		if line.Line != req.Lines()[i] || !receipt.Replayed && (line.Token != 0) != p.strategy.Fenced {
			t.Errorf("line %d of the receipt is %+v, want %+v, and a token if the strategy is fenced", i, line, req.Lines()[i])
		}
		remaining = append(remaining, strconv.FormatInt(line.Remaining, 10))
	}
	if receipt.Entered > receipt.Left || receipt.Waited < 0 || receipt.Attempts != 1 {
		t.Errorf("the fields of the receipt contradict each other: %+v", receipt)
	}
	answer := strings.Join(remaining, " ") + " remain"
	if receipt.Replayed {
		answer += ", replayed"
	}
	return answer
}
