// Package size predicts how many sales per second a strategy reaches on machines that the lab does not have.
//
// Calibrate measures a strategy with a few numbers of users, items and replicas, with slower round trips, and with
// slower flushes. A Profile keeps what a sale costs: the CPU time at each station, and for how long it keeps others
// from selling the same item. Predict computes from a Profile what the strategy does in any other setting. PredictAll
// predicts a list of settings, and MeasureTests measures them. The caller writes the predictions down in between.
package size

import (
	"fmt"
	"strings"
	"time"
)

// A Station is a part of the system that needs CPU time for a sale.
type Station string

// The stations. Load is what sends the requests, and the proxies that delay the round trips: nobody has to buy it.
const (
	Load    Station = "load"
	Nginx   Station = "nginx"
	Service Station = "service"
	MySQL   Station = "MySQL"
	Redis   Station = "Redis"
)

// Stations lists the stations in the order in which a request reaches them.
var Stations = []Station{Load, Nginx, Service, MySQL, Redis}

// A Setting is what a prediction or a measurement is made for.
type Setting struct {
	Users    int `json:"users"`    // in a closed loop
	Items    int `json:"items"`    // asked for equally often
	Replicas int `json:"replicas"` // of the service

	AddedRTT   time.Duration `json:"rtt,omitempty"`   // to each round trip from the service to MySQL and Redis
	AddedFlush time.Duration `json:"flush,omitempty"` // to each flush of MySQL

	// Cores limits the CPU time of stations, in cores. A station without a limit shares the cores of the host.
	Cores map[Station]float64 `json:"cores,omitempty"`
}

// String lists what the setting is, and leaves out what is usual.
func (s Setting) String() string {
	text := []string{fmt.Sprintf("users %d, items %d, replicas %d", s.Users, s.Items, s.Replicas)}
	if s.AddedRTT > 0 {
		text = append(text, fmt.Sprintf("RTT +%v", s.AddedRTT))
	}
	if s.AddedFlush > 0 {
		text = append(text, fmt.Sprintf("flush +%v", s.AddedFlush))
	}
	for _, station := range Stations {
		if cores, limited := s.Cores[station]; limited {
			text = append(text, fmt.Sprintf("%s %v cores", station, cores))
		}
	}
	return strings.Join(text, ", ")
}

// A Sample is what was measured in a setting.
type Sample struct {
	Setting
	Goodput float64             `json:"goodput"` // units sold correctly per second: the median of Rounds
	CPU     map[Station]float64 `json:"cpu"`     // seconds per sale
	Rounds  []float64           `json:"rounds"`  // goodputs
}
