package servers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WithoutDigest is an option of Java that SetSequence needs: snapshots are written without a digest of all nodes.
const WithoutDigest = "-Dzookeeper.digest.enabled=false"

// SetSequence makes the server number the next sequential child of each node with next, as if it had numbered that many
// before. It restarts the server with a changed snapshot.
func (z *ZooKeeper) SetSequence(ctx context.Context, next int32, nodes ...string) error {
	if err := z.Restart(ctx); err != nil { // writes a snapshot when it starts
		return err
	}
	z.Kill()
	if err := z.changeSnapshot(next, nodes); err != nil {
		return fmt.Errorf("change the newest snapshot of %s: %w", z.command.Name, err)
	}
	return z.Restart(ctx)
}

func (z *ZooKeeper) changeSnapshot(next int32, nodes []string) error {
	// The name ends in the number of a transaction in hexadecimal.
	names, err := filepath.Glob(filepath.Join(z.Data, "version-2", "snapshot.*"))
	if err != nil || len(names) == 0 {
		return errors.Join(errors.New("there is none"), err)
	}
	newest := slices.MaxFunc(names, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	})
	snapshot, err := os.ReadFile(newest)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if snapshot, err = withCversion(snapshot, node, next); err != nil {
			return err
		}
	}
	return os.WriteFile(newest, snapshot, 0o600)
}

// withCversion changes the cversion of a node in a snapshot: the number that the server gives to its next sequential
// child.
func withCversion(snapshot []byte, node string, cversion int32) ([]byte, error) {
	// A node is its path, its data, the id of its ACL, czxid, mzxid, ctime, mtime, its version, and its cversion. A
	// string is its length and its bytes; a buffer that is nil has the length -1.
	name := append(binary.BigEndian.AppendUint32(nil, uint32(len(node))), node...)
	at := bytes.Index(snapshot, append(name, 0xff, 0xff, 0xff, 0xff))
	if at < 0 {
		return nil, fmt.Errorf("it has no node %s without data", node)
	}
	at += len(name) + 4 + 8 + 4*8 + 4
	binary.BigEndian.PutUint32(snapshot[at:], uint32(cversion))
	// The list of nodes ends with the path "/". Then come the checksum of all before it, and "/" again.
	end := []byte{0, 0, 0, 1, '/'}
	last := bytes.Index(snapshot[at:], end)
	if last < 0 {
		return nil, errors.New("it has no end")
	}
	snapshot = snapshot[:at+last+len(end)]
	snapshot = binary.BigEndian.AppendUint64(snapshot, uint64(adler32.Checksum(snapshot)))
	return append(snapshot, end...), nil
}
