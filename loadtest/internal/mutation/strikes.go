package mutation

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// strikes asks every replica how often the change of the mutant was applied.
func (l Lab) strikes(ctx context.Context) (sum int64, err error) {
	for _, replica := range l.Topology.Replicas {
		n, err := l.strikesOf(ctx, replica.AdminURL+"/metrics")
		if err != nil {
			return 0, fmt.Errorf("ask %s for the strikes of its mutant: %w", replica.Name, err)
		}
		sum += n
	}
	return sum, nil
}

func (l Lab) strikesOf(ctx context.Context, address string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := l.Target.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "stock_mutant_strikes_total "); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, fmt.Errorf("%s has no stock_mutant_strikes_total", address)
}
