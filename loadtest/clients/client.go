// Client sells units of an item, each with a key of its own: go run client.go URL ITEM SALES.
package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"log"
	random "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

const strategy = "ledger"

var client = http.Client{Timeout: 20 * time.Second}

func main() {
	url := os.Args[1] + "/stock/deduct/" + strategy + "?goods_id=" + os.Args[2] + "&count=1"
	sales, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	for range sales {
		key := rand.Text() // a shop stores it with the order before it sends anything
		fmt.Println(key, sell(url, key))
	}
}

// sell sends a sale until it is answered. After a minute it gives up, and the outcome is unknown.
func sell(url, key string) string {
	deadline := time.Now().Add(time.Minute)
	for limit := 100 * time.Millisecond; ; limit = min(2*limit, 5*time.Second) {
		status, after := send(url, key)
		switch {
		case status/100 == 2:
			return "sold"
		case after == 0 && !slices.Contains([]int{0, 500, 502, 503, 504}, status):
			return fmt.Sprint("refused ", status)
		}
		wait := after + random.N(limit)
		if time.Now().Add(wait).After(deadline) {
			return "unknown"
		}
		time.Sleep(wait)
	}
}

// send sends a sale once. It returns the status, 0 without an answer, and Retry-After.
func send(url, key string) (status int, after time.Duration) {
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", key)
	reply, err := client.Do(request)
	if err != nil {
		return 0, 0
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body)
	seconds, _ := strconv.Atoi(reply.Header.Get("Retry-After"))
	return reply.StatusCode, time.Duration(seconds) * time.Second
}
