package endtoend

import (
	"cmp"
	"os"
	"slices"
	"testing"
)

// judged says whether a test holds its figures against their budgets, as scripts/txn-budget.sh asks it to. Otherwise it is small, and
// judges no speed: a busy machine must not.
func judged() bool { return os.Getenv("GOPHERLOG_TEST_BUDGETS") != "" }

// budget is a row of the table that scripts/txn-budget.sh prints. The zero limit is none.
type budget struct {
	what   string
	figure float64
	least  bool // the limit is what it must reach, not what it may reach
	limit  float64
	unit   string
	note   string
}

func (b budget) held() bool {
	return b.limit == 0 || b.least && b.figure >= b.limit || !b.least && b.figure <= b.limit
}

// show logs the row where the script finds it, and fails a judged test that missed it.
func (b budget) show(t *testing.T) {
	t.Helper()
	sign, verdict := "<=", "ok"
	if b.least {
		sign = ">="
	}
	if !b.held() {
		verdict = "MISS"
	}
	if b.limit == 0 {
		t.Logf("budget: %-52s %9.3g %-4s %12s %-4s %s", b.what, b.figure, b.unit, "", "", b.note)
		return
	}
	t.Logf("budget: %-52s %9.3g %-4s %2s %9.4g %-4s %s", b.what, b.figure, b.unit, sign, b.limit, verdict, b.note)
	if judged() && !b.held() {
		t.Errorf("%s: %.3g %s, want %s %.4g", b.what, b.figure, b.unit, sign, b.limit)
	}
}

func median[T cmp.Ordered](xs []T) T {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
