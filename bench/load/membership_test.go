package load

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/scenario"
)

// forgetful is a group with one member, whose coordinator forgets the member while it asks to join again.
type forgetful struct {
	t       *testing.T
	cluster *kfake.Cluster
	driver  *kafka
	member  *kafkaMember
}

func newForgetful(t *testing.T, transactional bool) *forgetful {
	c, d := fakeCluster(t)
	f := &forgetful{t: t, cluster: c, driver: d.(*kafka)}
	_, err := f.driver.admin.CreateTopic(t.Context(), 1, 3, nil, "in")
	f.must(err)
	for n := range 100 {
		f.must(f.driver.client.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: []byte(fmt.Sprint(n))}).FirstErr())
	}
	cfg := MemberConfig{ClientID: "m", Group: "g", Topics: []string{"in"}, SessionTimeout: 30 * time.Second, Rebalance: time.Minute,
		Watch: MemberWatch{Assigned: func(string, int32, int32) {}, Revoked: func(string, int32, int32, bool) {}, Position: func(string, int32, int64) {}},
		Producer: ProducerConfig{ClientID: "m", Acks: -1, Idempotent: true, Retries: -1, DeliveryTimeout: time.Minute, RequestTimeout: time.Minute,
			Inflight: 5, BatchBytes: 1 << 20, Compression: "none", MaxOutstanding: 100}}
	if transactional {
		cfg.ReadCommitted, cfg.Producer.TransactionalID, cfg.Producer.TransactionTimeout = true, "m", time.Minute
	}
	m, err := f.driver.NewMember(t.Context(), cfg)
	f.must(err)
	t.Cleanup(m.Close)
	f.member = m.(*kafkaMember)
	if transactional {
		_, err = m.Init(t.Context())
		f.must(err)
	}
	return f
}

func (f *forgetful) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// poll is the offsets of the first and of the last message of a poll that brings some.
func (f *forgetful) poll() (first, last int64) {
	f.t.Helper()
	for first = -1; first < 0; {
		_ = f.member.Poll(f.t.Context(), 10, func(d Delivery) {
			if first < 0 {
				first = d.Offset
			}
			last = d.Offset
		})
		if first < 0 {
			f.member.Release()
		}
	}
	return first, last
}

// end commits what was polled, and says whether that was done.
func (f *forgetful) end(last int64) (done bool) {
	f.t.Helper()
	if f.member.session != nil {
		e := f.member.End(f.t.Context(), true)
		f.must(e.Err)
		return e.Result == TxnCommitted
	}
	f.member.Commit(f.t.Context(), []Place{{"in", 0, last + 1}}, func(_ Place, err error) {
		if err != nil && !refusedPosition(err) {
			f.t.Errorf("whether it was committed is not known: %v", err)
		}
		done = err == nil
	})
	f.member.Release()
	return done
}

func (f *forgetful) begin() {
	if f.member.session != nil {
		f.must(f.member.Begin())
	}
}

// askToJoin makes the member join again; its request waits until the answer is called.
func (f *forgetful) askToJoin() (answer func()) {
	asked, answered := make(chan struct{}), make(chan struct{})
	f.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.DropControl()
		close(asked)
		f.cluster.SleepControl(func() { <-answered })
		return nil, nil, false
	})
	f.member.client.ForceRebalance()
	<-asked
	return func() { close(answered) }
}

// goOn forgets the member and commits a position, as another member that came and went.
func (f *forgetful) goOn(offset int64) {
	f.t.Helper()
	id, _ := f.member.client.GroupMetadata()
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "g"
	leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id}}
	resp, err := leave.RequestWith(f.t.Context(), f.driver.client)
	f.must(err)
	if resp.ErrorCode != 0 || len(resp.Members) != 1 || resp.Members[0].ErrorCode != 0 {
		f.t.Fatalf("LeaveGroup: %+v", resp)
	}
	var at kadm.Offsets
	at.AddOffset("in", 0, offset, -1)
	f.must(f.driver.admin.CommitAllOffsets(f.t.Context(), "g", at))
}

func (f *forgetful) position() int64 {
	f.t.Helper()
	got, err := f.driver.Positions(context.WithoutCancel(f.t.Context()), "g")
	f.must(err)
	for _, p := range got {
		return p.Offset
	}
	return -1
}

// A member that stood still for a while asks to join again, and its group has forgotten it and gone on without it: it takes nothing back and
// begins where the group stands.
func TestAMemberThatItsGroupForgotBeginsWhereTheGroupStands(t *testing.T) {
	for _, g := range []scenario.Guarantee{scenario.AtLeastOnce, scenario.Transactional} {
		t.Run(string(g), func(t *testing.T) {
			f := newForgetful(t, g.Transacts())
			_, last := f.poll()
			f.begin()
			if !f.end(last) {
				t.Fatal("the first commit was not done")
			}
			answer := f.askToJoin()
			first, last := f.poll() // what the client had fetched
			f.begin()
			f.goOn(80)
			answer()
			if f.end(last) {
				t.Errorf("from %d to %d was committed by a member that the group had forgotten", first, last)
			}
			if at := f.position(); at != 80 {
				t.Errorf("the group went back to %d", at)
			}
			for done := false; !done; { // until it hears the answer it reads on, in vain
				first, last = f.poll()
				f.begin()
				done = f.end(last)
			}
			if first != 80 {
				t.Errorf("the member read on from %d, the group stood at 80", first)
			}
		})
	}
}

// franz-go may forget that everything was lost where the loss falls on the end of a transaction, and commits the next one without positions.
func TestWhatWasPolledInOneHoldingIsNotCommittedInAnother(t *testing.T) {
	for _, g := range []scenario.Guarantee{scenario.AtLeastOnce, scenario.Transactional} {
		t.Run(string(g), func(t *testing.T) {
			f := newForgetful(t, g.Transacts())
			_, last := f.poll()
			f.begin()
			f.member.membership.end(nil)
			if f.end(last) {
				t.Error("committed by a member that holds nothing")
			}
			f.member.membership.begin()
			_, last = f.poll()
			f.begin()
			f.member.membership.end(nil)
			f.member.membership.begin()
			if f.end(last) {
				t.Error("committed by a member that lost what it held and got it back")
			}
			if at := f.position(); at > 0 {
				t.Errorf("the group stands at %d", at)
			}
		})
	}
}
