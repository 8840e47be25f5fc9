package tcpproxy

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pauser waits precisely, also for less than a millisecond. The runtime's timers may be a millisecond late, because
// epoll_wait counts in milliseconds. A timerfd becomes readable in time, and waiting for it blocks no thread.
type pauser struct {
	fd   int
	file *os.File // of fd; nil: not made yet
}

// pause waits for d. If there can be no timer, for example because the process has no file descriptor left, it uses
// time.Sleep.
func (p *pauser) pause(d time.Duration) {
	began := time.Now()
	if d > 0 && p.expire(d) != nil {
		time.Sleep(d - time.Since(began))
	}
}

// expire sets the timer, and reads how often it has expired, which blocks until it has.
func (p *pauser) expire(d time.Duration) (err error) {
	if p.file == nil {
		if p.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
			return err
		}
		p.file = os.NewFile(uintptr(p.fd), "timer")
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(p.fd, 0, &at, nil); err != nil {
		return err
	}
	var expirations [8]byte
	_, err = p.file.Read(expirations[:])
	return err
}

func (p *pauser) close() {
	if p.file != nil {
		p.file.Close()
	}
}
