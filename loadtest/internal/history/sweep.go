package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Axes of a sweep, which varies one property of the workload.
const (
	AxisUsers    = "users"
	AxisHold     = "hold"
	AxisGoods    = "goods"
	AxisReplicas = "replicas"
)

// At returns the subject's value on the axis of its sweep: users, milliseconds of hold, items or replicas.
func (s Subject) At() int64 {
	switch s.Sweep {
	case AxisUsers:
		return int64(s.Users)
	case AxisHold:
		return s.HoldMS
	case AxisGoods:
		return int64(s.Goods)
	}
	return int64(s.Replicas)
}

// Value formats a value of an axis as users write it: 8, or 2ms.
func Value(axis string, at int64) string {
	if axis == AxisHold && at > 0 {
		return (time.Duration(at) * time.Millisecond).String()
	}
	return strconv.FormatInt(at, 10)
}

// Place describes a value of an axis: 8 users, hold 2ms, 5 items.
func Place(axis string, at int64) string {
	noun := strings.TrimSuffix(axis, "s")
	switch axis {
	case AxisHold:
		return "hold " + Value(axis, at)
	case AxisGoods:
		noun = "item"
	}
	if at == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", at, noun)
}

// Label names the subject in sentences.
func (s Subject) Label() string {
	parts := []string{s.Strategy, s.Workload.Name, Place(AxisReplicas, int64(s.Replicas))}
	if s.Store != "" && s.Store != "none" {
		parts = append(parts, s.Store)
	}
	if s.Sweep != "" && s.Sweep != AxisReplicas {
		parts = append(parts, Place(s.Sweep, s.At()))
	}
	return strings.Join(parts, ", ")
}
