package tcpproxy

import (
	"cmp"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pauser waits precisely, also for less than a millisecond. The runtime's timers may be a millisecond late, because
// epoll_wait counts in milliseconds. A timerfd becomes readable in time, and waiting for it blocks no thread.
type pauser struct{ timer *os.File }

// pause waits for d. If no timer can be made, for example because the process has no file descriptor left, it uses
// time.Sleep.
func (p *pauser) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	if p.timer == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			time.Sleep(d)
			return
		}
		p.timer = os.NewFile(uintptr(fd), "timer")
	}
	began := time.Now()
	if err := p.expire(d); err != nil {
		time.Sleep(d - time.Since(began))
	}
}

// expire sets the timer, and reads how often it has expired, which blocks until it has.
func (p *pauser) expire(d time.Duration) error {
	conn, err := p.timer.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = conn.Control(func(fd uintptr) {
		at := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
		setErr = unix.TimerfdSettime(int(fd), 0, &at, nil)
	})
	if err != nil || setErr != nil {
		return cmp.Or(err, setErr)
	}
	var expirations [8]byte
	_, err = p.timer.Read(expirations[:])
	return err
}

func (p *pauser) close() {
	if p.timer != nil {
		p.timer.Close()
	}
}
