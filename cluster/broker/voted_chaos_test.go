package broker

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// attempts are what clients were told about their transactions.
type attempts struct {
	mu        sync.Mutex
	committed map[string]bool // certainly
	aborted   map[string]bool // certainly
	unknown   map[string]bool
}

func (a *attempts) note(where *map[string]bool, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *where == nil {
		*where = map[string]bool{}
	}
	(*where)[name] = true
}

// run has one client run transactions over all partitions, one after the other, until stop.
func (a *attempts) run(c *trio, id string, seed uint64, stop <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	level := levels[[]string{"version 0", "version 2"}[rnd.IntN(2)]]
	cl := c.transactional(id, level...)
	for i := 0; ; i++ {
		select {
		case <-stop:
			leaveNothingOpen(c, cl, id, level)
			return
		default:
		}
		name := fmt.Sprintf("%s/%d", id, i)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		wanted := kgo.TransactionEndTry(rnd.IntN(4) > 0)
		err := transact(ctx, cl, wanted, name, 0, 1, 2)
		switch {
		case err == nil && bool(wanted):
			a.note(&a.committed, name)
		case err == nil:
			a.note(&a.aborted, name)
		case cl.EndTransaction(ctx, kgo.TryAbort) == nil: // refused, and the abort says that it is so; or answered twice
			a.note(&a.unknown, name)
		default: // this client cannot go on: a new one takes its place
			a.note(&a.unknown, name)
			cl.Close()
			cl = c.transactional(id, level...)
		}
		cancel()
	}
}

// leaveNothingOpen ends what the client before this one may have left: it would be open until its time is over.
func leaveNothingOpen(c *trio, cl *kgo.Client, id string, level []kgo.Opt) {
	for end := time.Now().Add(patience); time.Now().Before(end); cl = c.transactional(id, level...) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, _, err := cl.ProducerID(ctx)
		cancel()
		if err == nil {
			return
		}
		cl.Close()
	}
	c.t.Errorf("%s: no client of it can begin", id)
}

// Whatever node dies when, a transaction is there in all its partitions or in none, as its client was told.
func TestRandomKillsLeaveVotedTransactionsWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	kills := 6
	if testing.Short() {
		kills = 2
	}
	c := newTrio(t)
	c.createTopic("t", 3)
	c.calm()
	var a attempts
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		wg.Go(func() { a.run(c, fmt.Sprintf("2pc.%d", i), seed+uint64(i), stop) })
	}
	for range kills {
		time.Sleep(time.Duration(200+rnd.IntN(800)) * time.Millisecond)
		n := c.nodes[rnd.IntN(3)]
		n.kill()
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		n.start()
		n.ready()
	}
	time.Sleep(time.Second)
	close(stop)
	wg.Wait()
	c.quiet()
	want := 3 * len(a.committed)
	seen := map[string][]string{}
	for _, v := range c.committedValues("t", want, 0, 1, 2) {
		number, name, _ := strings.Cut(v, ":")
		seen[name] = append(seen[name], number)
	}
	for name, in := range seen {
		if !slices.Equal(in, []string{"0", "1", "2"}) {
			t.Errorf("%s is in partitions %v", name, in)
		}
		if a.aborted[name] {
			t.Errorf("%s was aborted and can be read", name)
		}
	}
	for name := range a.committed {
		if seen[name] == nil {
			t.Errorf("%s was committed and cannot be read", name)
		}
	}
	for name := range maps.Keys(seen) {
		if !a.committed[name] && !a.unknown[name] {
			t.Errorf("nobody committed %s", name)
		}
	}
	c.checkVotes()
	t.Logf("%d committed, %d aborted, %d unknown", len(a.committed), len(a.aborted), len(a.unknown))
	if len(a.committed) == 0 {
		t.Fatal("nothing was committed")
	}
}
