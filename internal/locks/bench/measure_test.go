package main

import (
	"testing"
	"time"
)

func TestFiguresOfACell(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	got, err := evaluate([]result{
		{Grants: 30, Late: 1, Longest: 5 * ms, Commands: 60, Trips: 50},
		{Grants: 48, Late: 1, Longest: 3 * ms, Commands: 100, Trips: 30, Failures: 2, Failure: "why"},
	}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	// 78 locks in time, 80 in total
	want := sample{
		Locks: 39, Commands: 2, Trips: 1, Longest: 5, Fairness: 30.0 / 39, Failures: 2, Failure: "why",
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

func TestFiguresOfALockThatTookTurns(t *testing.T) {
	t.Parallel()
	us := time.Microsecond
	got, err := turnTaker{
		Lock: redisQueue, Took: []time.Duration{900 * us, 100 * us, 120 * us},
		Commands: 7, Trips: 6, Failures: 1, Failure: "why",
	}.evaluate()
	if err != nil {
		t.Fatal(err)
	}
	want := sample{
		Lock: redisQueue, Median: 120, P99: 900, Commands: 7.0 / 3, Trips: 2, Failures: 1, Failure: "why",
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	if _, err := (turnTaker{Failures: 1}).evaluate(); err == nil {
		t.Error("no error for a lock that was never acquired")
	}
}

func TestACellWithoutAGrantIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := evaluate([]result{{Failures: 1, Failure: "why"}}, time.Second); err == nil {
		t.Error("no error")
	}
}

func TestCommandsAreCountedWhereverTheStreamIsCut(t *testing.T) {
	t.Parallel()
	stream := "*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*1\r\n$3\r\nx\r\n" + // a value that looks like a command
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n" +
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
	for cut := range len(stream) {
		var s scanner
		if got := s.commands([]byte(stream[:cut])) + s.commands([]byte(stream[cut:])); got != 2 {
			t.Errorf("cut after %q: %d commands, want 2", stream[:cut], got)
		}
	}
	var s scanner
	total := 0
	for i := range len(stream) {
		total += s.commands([]byte{stream[i]})
	}
	if total != 2 {
		t.Errorf("byte by byte: %d commands, want 2", total)
	}
}

func TestDetectorFindsASecondHolder(t *testing.T) {
	t.Parallel()
	file, err := newDetectorFile()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a, err := openDetector(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openDetector(file)
	if err != nil {
		t.Fatal(err)
	}
	if !a.enter(1) || b.enter(2) || b.leave(2) || !a.leave(1) || !b.enter(2) {
		t.Error("two contenders were inside, or one was refused while nobody was inside")
	}
}
