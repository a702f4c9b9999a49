package coordinator

import (
	"testing"

	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

func groupsListed(t *testing.T, g *Groups) (n int, code group.Code) {
	t.Helper()
	c := make(chan int, 1)
	g.List(func(all []Described, why group.Code) { code = why; c <- len(all) })
	return wait(t, c), code
}

func idsListed(t *testing.T, x *Transactions) (n int, code kafkatx.Code) {
	t.Helper()
	c := make(chan int, 1)
	x.List(TxnFilter{}, func(all []TxnDescribed, why kafkatx.Code) { code = why; c <- len(all) })
	return wait(t, c), code
}

// After a restart a replica that never led here may be elected, and older terms are not all applied yet.
func TestAListSaysThatAShardIsLoadingWhichNeverLedHere(t *testing.T) {
	r := newRig(t)
	wait(t, r.commit("g", "", -1, at(0, 7)))
	r.meta.set(OffsetsTopic, 2)
	second := &fakeShard{elected: true}
	second.kept = r.g.Open(OffsetsTopic, 1, second)
	r.g.Led(second) // it is open
	if n, code := groupsListed(t, r.g); n != 1 || code != LoadInProgress {
		t.Fatalf("groups: %d, code %d", n, code)
	}
	second.change(func(p *fakeShard) { p.elected = false })
	if n, code := groupsListed(t, r.g); n != 1 || code != group.OK {
		t.Fatalf("groups without the shard: %d, code %d", n, code)
	}

	x := newTxnRig(t)
	x.meta.set(TransactionsTopic, 2)
	second = &fakeShard{elected: true}
	second.kept = x.x.Open(TransactionsTopic, 1, second)
	x.x.Led(second)
	if n, code := idsListed(t, x.x); n != 0 || code != TxnLoadInProgress {
		t.Fatalf("transactional ids: %d, code %d", n, code)
	}
}

func TestAListSaysThatAShardOfVotedIdsIsLoading(t *testing.T) {
	v := newVotedRig(t)
	v.lose()
	x := newTxnRig(t, func(c *TxnConfig) { c.Voted = v.v })
	if _, code := idsListed(t, x.x); code != kafkatx.OK {
		t.Fatalf("code %d, and the shard is another node's", code)
	}
	v.part.change(func(p *fakeShard) { p.elected = true })
	if _, code := idsListed(t, x.x); code != TxnLoadInProgress {
		t.Fatalf("code %d", code)
	}
}

// A shard that has no time for one more question has not said what it knows.
func TestAListSaysThatAShardWasNotAsked(t *testing.T) {
	r, x := newRig(t), newTxnRig(t)
	for _, sh := range []*shard{r.g.shards.all[0], x.x.shards.all[0]} {
		fillUp(t, sh)
	}
	if _, code := groupsListed(t, r.g); code != LoadInProgress {
		t.Errorf("groups: code %d", code)
	}
	if _, code := idsListed(t, x.x); code != TxnLoadInProgress {
		t.Errorf("transactional ids: code %d", code)
	}
}

// fillUp keeps a shard busy, and gives it as many requests as it takes.
func fillUp(t *testing.T, sh *shard) {
	t.Helper()
	_, busy := sh.active()
	if busy != codeNone {
		t.Fatalf("the shard is not led: %d", busy)
	}
	on := sh.cur.Load()
	began, done := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(done) })
	on.post(func() { began <- struct{}{}; <-done })
	wait(t, began)
	for range maxAsked {
		if code := on.ask(func() {}); code != codeNone {
			t.Fatalf("a request is refused: %d", code)
		}
	}
}
