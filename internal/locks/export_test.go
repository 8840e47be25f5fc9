package locks

// Held says whether anybody holds or waits for key.
func (m *Mutex) Held(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[key] != nil
}

var (
	UserLockName = userLockName
	NodeName     = nodeName
)
