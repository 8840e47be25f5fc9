package main

import (
	"errors"
	"testing"
	"time"
)

func TestFiguresOfACell(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	got, err := evaluate([]contender{
		{inTime: 30, late: 1, longest: 5 * time.Millisecond},
		{inTime: 48, late: 1, longest: 3 * time.Millisecond, violations: 1, failures: 2, failure: why},
	}, 160, 2*time.Second)
	want := sample{
		rate: 39, commands: 2, longest: 5 * time.Millisecond, violations: 1, failures: 2, failure: why,
	}
	if err != nil || got != want {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if _, err := evaluate([]contender{{failures: 1, failure: why}}, 0, time.Second); !errors.Is(err, why) {
		t.Errorf("a cell without a grant: %v, want the contender's error", err)
	}
}

func TestCommandsOfAWrite(t *testing.T) {
	t.Parallel()
	got := commandsIn([]byte("*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*1\r\n$3\r\nx\r\n" + // a value that looks like a command
		"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n" +
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"))
	if got != 2 {
		t.Errorf("%d commands, want 2", got)
	}
}
