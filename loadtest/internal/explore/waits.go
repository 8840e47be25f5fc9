package explore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stock/loadtest/internal/explore/wire"
)

// blocked reports whether all of these exchanges wait in their stores. It asks the stores what waits, because a timer
// could only guess.
func (l *lane) blocked(ctx context.Context, flying []*exchange) (bool, error) {
	inMySQL, inRedis := 0, 0
	var inPostgres []uint32
	for _, f := range flying {
		switch {
		case f.Store == PostgreSQL:
			inPostgres = append(inPostgres, f.Conn.PID)
		case f.Store == "mysql":
			inMySQL++
		case !f.Blocks:
			return false, nil
		default:
			inRedis++
		}
	}
	if inRedis > 0 {
		waiting, err := l.blockedInRedis(ctx)
		if err != nil || waiting < inRedis {
			return false, err
		}
	}
	if len(inPostgres) > 0 {
		if waiting, err := l.blockedInPostgres(ctx, inPostgres); err != nil || !waiting {
			return false, err
		}
	}
	if inMySQL == 0 {
		return true, nil
	}
	// MySQL counts a statement as waiting until its thread has woken up, which takes a while on a busy machine.
	if anyThread(l.mysql.PID, func(state byte) bool { return state == 'R' }) {
		return false, nil
	}
	waiting := 0
	if err := l.db.QueryRowContext(ctx, l.waits).Scan(&waiting); err != nil {
		return false, fmt.Errorf("ask MySQL what waits: %w", err)
	}
	return waiting >= inMySQL, nil
}

// blockedInRedis counts the clients whose commands wait, such as BLPOP. Background jobs of replicas may be among them.
func (l *lane) blockedInRedis(ctx context.Context) (n int, err error) {
	clients := l.keys.InfoMap(ctx, "clients")
	if err := clients.Err(); err != nil {
		return 0, fmt.Errorf("ask Redis what waits: %w", err)
	}
	return strconv.Atoi(clients.Item("Clients", "blocked_clients"))
}

// awake reports whether an actor does something. The session of a script goes on until it asks a store, or ends.
func (l *lane) awake(a *actor) bool {
	r := l.replicas[a.replica]
	return r.awake() || r.Replica == nil && !a.answered
}

// awake reports whether a thread of the process runs, or could run. One whose connection is being opened, or that has
// asked a server, goes on soon: it may ask before its threads are looked at, or after that.
func (r *replica) awake() bool {
	busy := func() bool { return slices.ContainsFunc(r.proxies, (*wire.Proxy).Busy) }
	return r.Replica != nil && (busy() || anyThread(r.PID, runs) || anyThread(r.PID, runs) || busy())
}

// runs reports whether a thread in this state runs, or waits for a disk and will go on by itself.
func runs(state byte) bool { return state == 'R' || state == 'D' }

// anyThread reports whether is holds for the state of a thread of a process and its descendants.
func anyThread(pid int, is func(state byte) bool) bool {
	for _, file := range threadsOf(strconv.Itoa(pid)) {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which is in parentheses and may contain any character.
		if _, state, found := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); found && is(state[0]) {
			return true
		}
	}
	return false
}

// threadsOf lists the files with the states of the threads of a process and its descendants. It is empty where there is
// no /proc: only the time tells there.
func threadsOf(pid string) (files []string) {
	tasks, _ := filepath.Glob("/proc/" + pid + "/task/*")
	for _, task := range tasks {
		files = append(files, task+"/stat")
		children, _ := os.ReadFile(task + "/children") // none if the thread has ended
		for child := range strings.FieldsSeq(string(children)) {
			files = append(files, threadsOf(child)...)
		}
	}
	return files
}
