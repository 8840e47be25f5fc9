package nginx_test

import (
	"net/http"
	"strings"
	"testing"

	"stock/nginx"
)

// Each user takes two connections of nginx: one from the client and one to the replica. One worker may serve all users.
func TestNginxServes2000UsersAtOnce(t *testing.T) {
	t.Parallel()
	const users = 2000
	arrived := make(chan struct{}, 2*users)
	release := make(chan struct{})
	replica := startReplica(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	one := strings.Replace(nginx.Main(), "worker_processes auto", "worker_processes 1", 1)
	_, address := start(t, one, replica.address())
	url := "http://" + address
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make(chan string, users)
	for range users {
		go func() {
			response, err := client.Post(url, "application/json", strings.NewReader("{}"))
			arrived <- struct{}{} // at the replica, or refused before
			if err != nil {
				answers <- err.Error()
				return
			}
			response.Body.Close()
			answers <- response.Status
		}()
	}
	for range users {
		<-arrived
	}
	close(release)
	counts := map[string]int{}
	for range users {
		counts[<-answers]++
	}
	if counts["200 OK"] != users {
		t.Errorf("the answers are %v, want %d times 200 OK", counts, users)
	}
}
