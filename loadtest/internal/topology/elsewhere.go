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

// orElsewhere returns r.ready, whose error also says at which other addresses the program listens: it may ignore
// LISTEN, or open another port before. After a few seconds, it says so on standard error, once.
func (r *Replica) orElsewhere(process **servers.Process) func(context.Context) error {
	const patience = 4 // looks, one a second
	var looked time.Time
	var elsewhere []string
	var found int // in how many looks
	return func(ctx context.Context) error {
		err := r.ready(ctx)
		if err == nil {
			return nil
		}
		if time.Since(looked) > time.Second {
			looked, elsewhere = time.Now(), listening((*process).PID)
			if len(elsewhere) > 0 {
				found++
			}
			if len(elsewhere) > 0 && found == patience {
				fmt.Fprintf(os.Stderr, "\nthe service listens at %s, and it must listen at LISTEN=%s; its log ends with:\n%s\n",
					strings.Join(elsewhere, ", "), strings.TrimPrefix(r.URL, "http://"), (*process).Tail(20))
			}
		}
		if len(elsewhere) > 0 {
			err = fmt.Errorf("it listens at %s: %w", strings.Join(elsewhere, ", "), err)
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
