package traffic

import (
	"net/http"
	"testing"
	"time"
)

// The service runs in the process of the test, so what it uses of the CPU counts, too.
func TestTheResultHasTheCPUTimeOfTheLoadAlone(t *testing.T) {
	t.Parallel()
	const least = 20 * time.Millisecond
	driver := serve(t, 1, func(w http.ResponseWriter, r *http.Request) {
		for began := cpuTime(); cpuTime() < began+least; {
		}
		sell(w, r)
	})
	before := cpuTime()
	result := send(t, driver, Load{Users: 1, Requests: 1})
	most := cpuTime() - before
	if result.CPU < least || result.CPU > most {
		t.Errorf("the load used %v of the CPU, want %v to %v", result.CPU, least, most)
	}
}
