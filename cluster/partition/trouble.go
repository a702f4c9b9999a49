package partition

import "sync"

// maxTroubles bounds what is remembered; beyond it everything is forgotten and may be said once more.
const maxTroubles = 10_000

// troubles remembers what fails, by what it is about, so that the log tells when something begins to fail, fails otherwise, or works
// again, and not of every attempt.
type troubles struct {
	mu   sync.Mutex
	last map[string]string
}

// news says whether the outcome of an attempt is another one than the last time; nil is success, of which the first is no news.
func (t *troubles) news(about string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, failing := t.last[about]
	if err == nil {
		delete(t.last, about)
		return failing
	}
	if failing && old == err.Error() {
		return false
	}
	if t.last == nil || len(t.last) >= maxTroubles {
		t.last = make(map[string]string)
	}
	t.last[about] = err.Error()
	return true
}
