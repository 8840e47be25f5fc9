package load

import (
	"slices"
	"strings"
	"testing"

	"stock/loadtest/internal/history"
)

func TestParseSweep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"users=1,8,32,128": {"1", "8", "32", "128"},
		"hold=0,2ms,1s":    {"0", "2ms", "1s"},
		"goods=1, 10":      {"1", "10"},
		"replicas=1,2":     {"1", "2"},
	} {
		s, err := ParseSweep(text)
		var got []string
		for _, value := range s.Values {
			got = append(got, history.Value(s.Axis, value))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"users":         "must be an axis and its values",
		"user=1,2":      `axis "user": must be`,
		"users=1":       "at least two values",
		"users=8,1":     "1 after 8: values must ascend",
		"users=1,1":     "values must ascend",
		"users=0,1":     `users "0": must be a number from 1 to 10000`,
		"users=1,two":   `users "two"`,
		"users=1,":      `users ""`,
		"hold=0,2":      `hold "2": must be whole milliseconds`,
		"hold=0,1500us": "whole milliseconds",
		"replicas=1,9":  "must be a number from 1 to 8",
		"goods=1,20000": "must be a number from 1 to 10000",
	} {
		if s, err := ParseSweep(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error with %q", text, s, err, want)
		}
	}
}

func TestSweepRunsEveryValueAndRecordsIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sweep Sweep
		of    func(*history.History) int64
		cells int
	}{
		// The shop's strategy claims more on one replica than on two, so it runs on both at every value.
		{Sweep{history.AxisUsers, []int64{2, 4}}, func(h *history.History) int64 { return int64(h.Run.Users) }, 8},
		{Sweep{history.AxisHold, []int64{0, 2}}, func(h *history.History) int64 { return h.Run.HoldMS }, 8},
		{Sweep{history.AxisGoods, []int64{1, 3}}, func(h *history.History) int64 { return int64(len(h.Run.Initial)) }, 8},
		{Sweep{history.AxisReplicas, []int64{1, 2}}, func(h *history.History) int64 { return int64(h.Run.Replicas) }, 4},
	} {
		t.Run(test.sweep.Axis, func(t *testing.T) {
			t.Parallel()
			runner := (&shop{}).open(t, Config{Requests: 300, Replicas: 2, Sweep: test.sweep})
			ran := 0
			err := runner.Run(t.Context(), func(m Measured) error {
				ran++
				h := m.History
				if h.Run.Sweep != test.sweep.Axis || history.Value(h.Run.Sweep, test.of(&h)) != h.Run.Value {
					t.Errorf("%v: sweep %s, value %q, but the run has %d", h.Run.Cell, h.Run.Sweep, h.Run.Value, test.of(&h))
				}
				return nil
			})
			if err != nil || ran != test.cells {
				t.Errorf("%d runs, %v, want %d", ran, err, test.cells)
			}
			var kept []history.Cell
			for _, h := range onDisk(t, runner) {
				kept = append(kept, h.Run.Cell)
			}
			if plan := runner.Plan(); !slices.Equal(plan, kept) {
				t.Errorf("planned %v\nkept    %v", plan, kept)
			}
		})
	}
}
