package tcpproxy

import (
	"cmp"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pauser waits for less than a millisecond, too. The runtime's timers may be a millisecond late, because epoll_wait
// counts in milliseconds. The file of a timer wakes it in time, and blocks no thread meanwhile.
type pauser struct{ timer *os.File }

// pause waits for d. It may be as late as time.Sleep if the process has no file descriptor left.
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
