package coordinator

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/txn/kafkatx"
)

type informedParticipant struct {
	*fakeParticipant
	*replicaOf
}

func TestTheNewerOfImageAndOwnReplicaSaysWhoLeads(t *testing.T) {
	m := &fakeMeta{image: &meta.Image{Topics: map[string]*meta.Topic{}}}
	m.set("t", 1)
	for _, c := range []struct {
		image, own lead
		serves     bool
		want       lead
	}{
		{lead{3, 5}, lead{2, 6}, false, lead{2, 6}},
		{lead{3, 5}, lead{2, 4}, false, lead{3, 5}},
		{lead{3, 5}, lead{meta.NoLeader, 0}, false, lead{3, 5}},
		{lead{meta.NoLeader, 5}, lead{2, 5}, false, lead{2, 5}},
		{lead{3, 5}, lead{1, 6}, true, lead{1, 6}},
		{lead{3, 5}, lead{1, 6}, false, lead{meta.NoLeader, 6}},             // elected, and does not serve yet
		{lead{1, 5}, lead{meta.NoLeader, 0}, false, lead{meta.NoLeader, 5}}, // stepped down, and the image does not show it yet
		{lead{1, 5}, lead{2, 6}, false, lead{2, 6}},
	} {
		m.elect("t", 0, c.image.node, c.image.term)
		own := newReplica(m.Image(), "t")
		own.hears(c.own, c.serves)
		if got := leadOf(1, m.Image().Topic("t"), 0, own); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
		own.id[0]++ // of another creation of the topic
		if got := leadOf(1, m.Image().Topic("t"), 0, own); got != c.image {
			t.Errorf("%+v: %+v of another topic", c, got)
		}
	}
	for _, number := range []int32{-1, 1} {
		if got := leadOf(1, m.Image().Topic("t"), number, nil); got.node != meta.NoLeader {
			t.Errorf("%d: %+v", number, got)
		}
	}
}

// The control group's log is synced on a busy machine: the image comes long after the first message of the new leader.
func TestMarkersGoToWhomTheOwnReplicaNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own *informedParticipant
		r := newTxnRig(t, func(c *TxnConfig) { c.Local = func(string, int32) Participant { return own } })
		own = &informedParticipant{&fakeParticipant{}, newReplica(r.meta.Image(), "t")}
		far := &fakeParticipant{}
		r.second(func(c *TxnConfig) { c.Local = func(string, int32) Participant { return far } })
		r.meta.elect("t", 0, 3, 1) // which is down
		a := r.open("x", 0)
		r.took(r.end("x", a, true, kafkatx.Version0))
		time.Sleep(time.Second + time.Millisecond)
		own.hears(lead{2, 2}, false)
		r.x.Heard("t", 0)
		synctest.Wait()
		if n := len(far.markers()); n != 1 {
			t.Errorf("%d markers", n)
		}
		if s := r.described("x").Status; s != kafkatx.CompleteCommit {
			t.Error(s)
		}
	})
}

// It begins to serve, and is told so by itself.
func TestMarkersAreWrittenWhenThisNodeBeginsToServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own *informedParticipant
		var looks atomic.Int64
		r := newTxnRig(t, func(c *TxnConfig) {
			c.Local = func(string, int32) Participant { looks.Add(1); return own }
		})
		own = &informedParticipant{&fakeParticipant{}, newReplica(r.meta.Image(), "t")}
		own.hears(lead{1, 2}, false)
		r.took(r.end("x", r.open("x", 0), true, kafkatx.Version0))
		synctest.Wait()
		looks.Store(0)
		time.Sleep(time.Second + time.Millisecond)
		if n, looked := len(own.markers()), looks.Load(); n != 0 || looked > 4 { // the machine repeats itself
			t.Fatalf("%d markers, looked %d times in a second", n, looked)
		}
		own.hears(lead{1, 2}, true)
		r.x.Heard("t", 0)
		synctest.Wait()
		if n := len(own.markers()); n != 1 {
			t.Errorf("%d markers", n)
		}
	})
}

// A leader's first message has sent the coordinator there, and it does not serve yet.
func TestMarkersAreHeldAtTheNodeThatWasElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTxnRig(t)
		far := &informedParticipant{&fakeParticipant{}, newReplica(r.meta.Image(), "t")}
		far.hears(lead{2, 2}, false)
		far.refuse = partition.ErrNotLeader
		r.second(func(c *TxnConfig) { c.Local = func(string, int32) Participant { return far } })
		calls := &telephone{fakeTxnNode: fakeTxnNode{1, r.nodes}}
		r.x.cfg.Node = calls
		r.meta.elect("t", 0, 2, 2)
		r.took(r.end("x", r.open("x", 0), true, kafkatx.Version0))
		time.Sleep(markerWait / 2)
		far.change(func(p *fakeParticipant) { p.refuse = nil })
		far.hears(lead{2, 2}, true)
		synctest.Wait()
		if n, m := calls.count(), len(far.markers()); n != 1 || m != 1 {
			t.Errorf("%d markers after %d calls", m, n)
		}
	})
}

// What was gathered is taken once.
func TestNewsIsTakenByTheOneWhoWasCalled(t *testing.T) {
	var n news
	var wg sync.WaitGroup
	var taken atomic.Int64
	for i := range int32(100) {
		wg.Go(func() {
			if n.add(partition.MemberOf("t", i)) {
				taken.Add(int64(len(n.take())))
			}
		})
	}
	wg.Wait()
	if taken.Add(int64(len(n.take()))); taken.Load() != 100 {
		t.Errorf("%d of 100", taken.Load())
	}
}
