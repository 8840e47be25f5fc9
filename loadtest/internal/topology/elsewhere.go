package topology

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stock/internal/servers"
)

// elsewherePatience is for how long a program may listen at other addresses only: it may open those first.
const elsewherePatience = 4 * time.Second

// orGiveUp returns r.ready, and gives up if the program only listens at other addresses: it ignores LISTEN.
func (r *Replica) orGiveUp(process **servers.Process, giveUp context.CancelCauseFunc) func(context.Context) error {
	const pause = elsewherePatience / 8
	var since time.Time
	looked := time.Now()
	return func(ctx context.Context) error {
		err := r.ready(ctx)
		now := time.Now()
		if err == nil || now.Sub(looked) < pause {
			return err
		}
		looked = now
		switch elsewhere := listening((*process).PID); {
		case len(elsewhere) == 0:
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= elsewherePatience:
			giveUp(fmt.Errorf("it listens at %s", strings.Join(elsewhere, ", ")))
		}
		return err
	}
}

// listening returns the TCP addresses at which the processes of a group listen, on Linux.
func listening(group int) (addresses []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)                            // fails if the process has ended, as what follows does
		rest := string(text[bytes.LastIndexByte(text, ')')+1:]) // the name of the program may have brackets
		if fields := strings.Fields(rest); len(fields) < 3 || fields[2] != strconv.Itoa(group) {
			continue
		}
		dir := filepath.Dir(stat)
		var sockets []string
		files, _ := filepath.Glob(dir + "/fd/*")
		for _, file := range files {
			link, _ := os.Readlink(file)
			sockets = append(sockets, link)
		}
		for _, protocol := range []string{"tcp", "tcp6"} {
			table, _ := os.ReadFile(dir + "/net/" + protocol)
			for line := range strings.Lines(string(table)) {
				const address, state, inode, listens = 1, 3, 9, "0A" // proc_pid_net(5)
				fields := strings.Fields(line)
				if len(fields) > inode && fields[state] == listens && slices.Contains(sockets, "socket:["+fields[inode]+"]") {
					addresses = append(addresses, hostPort(fields[address]))
				}
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// hostPort returns an address as it is usually written. The kernel writes it in words of 32 bits, in hexadecimal, and
// those of a host in its own byte order, which is little-endian wherever the lab runs.
func hostPort(kernel string) string {
	host, port, _ := strings.Cut(kernel, ":")
	ip, _ := hex.DecodeString(host)
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	address, _ := netip.AddrFromSlice(ip)
	number, _ := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(address, uint16(number)).String()
}
