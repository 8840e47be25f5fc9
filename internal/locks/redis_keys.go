package locks

import "strings"

// sibling names another key of a lock, in the same slot of Redis Cluster: the hash tag of the lock's key is kept, or, where
// it has none, is the whole key. A key with braces that make no tag, such as a}b or {}a, has no sibling in its slot: it can
// be locked on one Redis only.
func sibling(key, suffix string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}
