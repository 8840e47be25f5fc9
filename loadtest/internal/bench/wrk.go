package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed wrk.lua
var wrkScript []byte

// byWrk names the subject that measures a strategy with wrk.
func byWrk(strategy string) string { return strategy + " by wrk" }

// wrkMeasured are the strategies that are also measured with wrk: noop shows what the lab's own load costs, the others
// whether their share of noop depends on it.
var wrkMeasured = []string{noop, "redis-script", "batch", "update"}

// wrkCount is what wrk.lua prints.
type wrkCount struct {
	Requests     int // that were answered
	Microseconds int64
	Refused      int // answered with a status from 400 up
	Broken       int // not sent, or not answered
}

// addWrk adds the subjects of the chosen strategies that wrk measures. Without wrk, a note says how to install it.
func (b *bench) addWrk(all []subject) []subject {
	path, err := exec.LookPath("wrk")
	if err != nil {
		b.result.Notes = append(b.result.Notes,
			`not measured: wrk is not installed: run "make servers" or "apt-get install wrk"`)
		return all
	}
	measured := map[string]bool{}
	for _, s := range all {
		measured[s.name] = true
	}
	for _, name := range wrkMeasured {
		if measured[name] {
			all = append(all, subject{name: byWrk(name), run: func(ctx context.Context, _ int) (cell, error) {
				return b.wrk(ctx, path, name)
			}})
		}
	}
	return all
}

// wrk measures a strategy after a warm-up, as the lab does. The answers are not judged. Requests that are in flight
// when wrk ends may still sell units. They do not disturb the next cell, which sets the stock after its warm-up.
func (b *bench) wrk(ctx context.Context, path, strategy string) (c cell, err error) {
	if err := b.Target.SetStock(ctx, map[int64]int64{1: ample}); err != nil {
		return cell{}, err
	}
	script := filepath.Join(b.Dir, "wrk.lua")
	if err := os.WriteFile(script, wrkScript, 0o600); err != nil {
		return cell{}, err
	}
	for _, duration := range []time.Duration{warmUp, b.Time} {
		b.warm()
		cmd := exec.CommandContext(ctx, path, b.wrkArguments(script, strategy, duration)...)
		output, err := cmd.CombinedOutput()
		if err != nil {
			return cell{}, fmt.Errorf("wrk: %w: %s", err, output)
		}
		count, err := readWrk(output)
		if err != nil {
			return cell{}, err
		}
		c = cell{
			rate: count.rate(), requests: count.Requests,
			load: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		}
	}
	return c, nil
}

// wrkArguments give wrk as many connections as there are users, and a thread for each processor, as the lab's own load
// has. A thread without a connection is an error.
func (b *bench) wrkArguments(script, strategy string, duration time.Duration) []string {
	seconds := int(math.Ceil(duration.Seconds())) // wrk knows no fractions
	return []string{
		fmt.Sprintf("-t%d", min(runtime.GOMAXPROCS(0), b.Users)), fmt.Sprintf("-c%d", b.Users),
		fmt.Sprintf("-d%ds", seconds), "--timeout", fmt.Sprintf("%ds", int(timeout.Seconds())),
		"-s", script, b.Target.URL + "/stock/deduct",
		"--", fmt.Sprintf(`{"strategy":%q,"goods_id":1,"count":1}`, strategy),
	}
}

// readWrk reads the last line of wrk's output. Requests that failed are an error: a refusal is cheaper than a sale.
func readWrk(output []byte) (count wrkCount, err error) {
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &count); err != nil {
		return count, fmt.Errorf("wrk printed no counts: %w: %s", err, output)
	}
	if count.Requests == 0 || count.Microseconds == 0 || count.Refused > 0 || count.Broken > 0 {
		return count, fmt.Errorf("wrk got %d answers, %d of them with an error status, and %d requests failed",
			count.Requests, count.Refused, count.Broken)
	}
	return count, nil
}

func (c wrkCount) rate() float64 { return float64(c.Requests) / float64(c.Microseconds) * 1e6 }
