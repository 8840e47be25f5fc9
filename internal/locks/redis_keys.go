package locks

import "strings"

// sibling names another key of a lock, in the same slot of Redis Cluster: the hash tag of the lock's key is kept, or, where
// it has none, is the whole key.
func sibling(key, suffix string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}
