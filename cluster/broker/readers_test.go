package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/cluster/rpc/rpctest"
)

// diary is what a reader's client writes down of its questions about offsets and epochs.
type diary struct {
	mu      sync.Mutex
	asked   int
	refused []string // the client asks again after a second
}

func (d *diary) Level() kgo.LogLevel { return kgo.LogLevelDebug }

func (d *diary) Log(_ kgo.LogLevel, msg string, kv ...any) {
	if !strings.HasPrefix(msg, "handled epoch") && !strings.HasPrefix(msg, "handled list") {
		return
	}
	line := msg
	for i := 0; i+1 < len(kv); i += 2 {
		line += fmt.Sprintf(" %v=%v", kv[i], kv[i+1])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if !strings.HasSuffix(line, "reloading=map[]") {
		d.refused = append(d.refused, line)
	}
}

// A reader that finds a new leader asks it about its epoch first. Leaderships are taken away and handed back here, without a node that is down:
// whoever is asked is, or becomes, the leader, and refuses nobody, unless leadership moved on again in that moment. In virtual time: the machine
// takes no part in whether an election is over before a question has been held for too long.
func TestReadersAreNotRefusedWhileLeadershipsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, func(c *trio) {
			c.clients, c.balanceEvery, c.balanceAfter = rpctest.New(), 20*time.Millisecond, 100*time.Millisecond
		})
		readersFollow(t, c)
	})
}

func readersFollow(t *testing.T, c *trio) {
	ctx, cancel := context.WithCancel(context.Background())
	if r, err := c.nodes[0].ctl.CreateTopics(within(t, time.Minute), []meta.TopicSpec{{Name: "t", Partitions: 3, ReplicationFactor: 3}}, false); err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	c.known("t")
	for a := range c.nodes {
		for b := range c.nodes {
			if a != b {
				c.net.Delay(c.nodes[a].id, c.nodes[b].id, 500*time.Microsecond)
			}
		}
		// A client that is named another leader while its question for metadata is held fetches again at once, and again: were that to take no
		// time, the hold would never be over.
		c.clients.Delay(c.nodes[a].id, clientSide, 100*time.Microsecond)
		c.clients.Delay(clientSide, c.nodes[a].id, 100*time.Microsecond)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var d diary
	from := map[int32]kgo.Offset{}
	for p := range int32(3) {
		from[p] = kgo.NewOffset().AtStart()
	}
	opts := append(quick(nil), kgo.Dialer(c.dial))
	producer := franz(t, c.addrs(), append(slices.Clone(opts), kgo.DisableIdempotentWrite())...) // it would ask for an id and hold a mutex, which stops virtual time
	reader := franz(t, c.addrs(), append(slices.Clone(opts), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": from}),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.WithLogger(&d))...)
	wg.Go(func() {
		for ctx.Err() == nil {
			for p := range int32(3) {
				producer.Produce(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}, nil)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			reader.PollFetches(ctx)
		}
	})
	moves := 20
	if testing.Short() {
		moves = 6
	}
	for i := range moves {
		time.Sleep(250 * time.Millisecond) // it is handed back meanwhile
		info, number := c.nodes[0].ctl.Image().Topic("t"), int32(i%3)
		eventually(t, "somebody leads", func() bool {
			info = c.nodes[0].ctl.Image().Topic("t")
			return info.Partitions[number].Leader > 0
		})
		n := c.nodes[info.Partitions[number].Leader-1]
		others := slices.DeleteFunc(slices.Clone(info.Partitions[number].Servers), func(s rpc.ServerID) bool { return s.Node() == n.id })
		if err := n.rpc.TimeoutNow(rpc.GroupID{Topic: info.ID, Partition: number}, others[i%2]); err != nil {
			t.Logf("move %d: %v", i, err)
		}
	}
	cancel()
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.Logf("%d moves, the reader asked %d times, refused %d times", moves, d.asked, len(d.refused)); d.asked < moves/2 {
		t.Error("the reader did not follow")
	}
	for _, line := range d.refused {
		t.Logf("refused: %s", line)
	}
	if len(d.refused) > moves/10 { // a quarter of the questions, were they not held
		t.Errorf("the reader was refused %d times", len(d.refused))
	}
}
