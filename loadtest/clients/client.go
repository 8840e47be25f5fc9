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

var client = http.Client{Timeout: 20 * time.Second}

func main() {
	url := os.Args[1] + "/stock/deduct?goods_id=" + os.Args[2] + "&count=1"
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
	deadline, unknown := time.Now().Add(time.Minute), false
	for limit := 100 * time.Millisecond; ; limit = min(2*limit, 5*time.Second) {
		status, after := send(url, key)
		switch {
		case status/100 == 2:
			return "sold"
		case after == "" && !slices.Contains([]int{0, 500, 502, 503, 504}, status):
			if unknown && status != 409 { // 409 is the answer of the key, all others are of this attempt
				return "unknown"
			}
			return fmt.Sprint("refused ", status)
		}
		unknown = unknown || status != 503
		seconds, _ := strconv.ParseUint(after, 10, 31) // 0 if it is a date
		wait := time.Duration(seconds)*time.Second + random.N(limit)
		if time.Now().Add(wait).After(deadline) {
			return "unknown"
		}
		time.Sleep(wait)
	}
}

// send sends a sale once. It returns the status, 0 without an answer, and Retry-After.
func send(url, key string) (status int, after string) {
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", key)
	request.Close = true // net/http sends again by itself if a connection breaks that was used before
	reply, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode, reply.Header.Get("Retry-After")
}
