package coordinator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/record"
	"gopherlog/txn/group"
)

func TestShardIsJavasHashOfTheKey(t *testing.T) {
	for key, want := range map[string]int32{"g": 103 % 16, "hello": 99162322 % 16, "polygenelubricants": 0, "": 0} {
		if got := ShardOf(key, 16); got != want {
			t.Errorf("%q belongs to shard %d, want %d", key, got, want)
		}
	}
}

func TestAnOffsetIsAnsweredWhenItIsCommittedAndNotBefore(t *testing.T) {
	r := newRig(t)
	r.part.change(func(p *fakeShard) { p.hold = true })
	c := r.commit("g", "", -1, at(0, 7))
	none(r, c)
	if got := r.committed("g", 0); got != -1 {
		t.Fatalf("an offset that is not committed is shown: %d", got)
	}
	r.part.release()
	if code := wait(t, c); code != group.OK || r.committed("g", 0) != 7 || r.committed("g", 1) != -1 {
		t.Fatalf("%s, offset %d", code, r.committed("g", 0))
	}
}

func TestUnloadingWithWritesPendingSendsEverybodyToTheNextCoordinator(t *testing.T) {
	r := newRig(t)
	j := wait(t, r.join("g", ""))
	r.part.change(func(p *fakeShard) { p.hold = true })
	synced := r.sync("g", j, nil)
	commit := r.commit("h", "", -1, at(0, 7))
	none(r, commit)
	r.lose()
	unknown := r.part.abandon()
	if s, code := wait(t, synced), wait(t, commit); s.Code != group.NotCoordinator || code != group.NotCoordinator {
		t.Fatalf("sync %s, commit %s", s.Code, code)
	}
	if code := wait(t, r.commit("h", "", -1, at(0, 8))); code != group.NotCoordinator {
		t.Fatalf("commit to who does not lead: %s", code)
	}
	for _, w := range unknown { // the next leader commits it all the same
		r.part.kept.Apply(w.batch)
	}
	r.lead(3)
	if got := r.committed("h", 0); got != 7 {
		t.Fatalf("offset %d, want what is in the log", got)
	}
	if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
		t.Fatalf("heartbeat of a member that the log knows: %s", code)
	}
}

func TestATakeOverNeedsNothingButWhatIsApplied(t *testing.T) {
	r := newRig(t)
	j := r.member("g")
	wait(t, r.commit("g", j.MemberID, j.Generation, at(1, 5)))
	r.lose()
	r.lead(2)
	if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
		t.Fatalf("heartbeat: %s", code)
	}
	if s := wait(t, r.sync("g", j, nil)); string(s.Assignment) != "all" {
		t.Fatalf("assignment after the take-over: %v", s)
	}
	if r.committed("g", 1) != 5 {
		t.Fatal("the offset is gone")
	}
}

func TestAMachineAppendsInItsOwnTermOnly(t *testing.T) {
	r := newRig(t)
	r.member("g")
	r.part.change(func(p *fakeShard) { p.epoch = 9 }) // lost and won again, and nobody said so yet
	if code := wait(t, r.commit("h", "", -1, at(0, 7))); code != group.NotCoordinator {
		t.Fatalf("a commit of another term: %s", code)
	}
	r.lead(9)
	if code := wait(t, r.commit("h", "", -1, at(0, 7))); code != group.OK {
		t.Fatalf("commit in the new term: %s", code)
	}
	for i, e := range r.part.epochs {
		if e == 0 {
			t.Fatalf("append %d names no term", i)
		}
	}
}

func TestElectedButNotReadyIsLoading(t *testing.T) {
	r := newRig(t)
	r.lose()
	r.part.change(func(p *fakeShard) { p.elected = true })
	if code := wait(t, r.commit("g", "", -1, at(0, 7))); code != LoadInProgress {
		t.Fatalf("commit: %s", code)
	}
	if _, code := r.fetch("g"); code != LoadInProgress {
		t.Fatalf("fetch: %s", code)
	}
}

func TestAGroupWhoseRecordIsTooLargeSaysSoAndStartsAnewFromTheLog(t *testing.T) {
	r := newRig(t)
	old := r.member("g")
	j := wait(t, r.join("g", old.MemberID, func(e *group.Join) { e.Protocols[0].Metadata = []byte("more topics") }))
	r.part.change(func(p *fakeShard) { p.refuse = partition.ErrTooLarge })
	if s := wait(t, r.sync("g", j, map[string][]byte{j.MemberID: []byte("huge")})); s.Code != UnknownServerError {
		t.Fatalf("sync: %s", s.Code)
	}
	if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
		t.Fatalf("the generation that is in the log: %s", code)
	}
	again := wait(t, r.join("g", old.MemberID))
	if s := wait(t, r.sync("g", again, map[string][]byte{again.MemberID: []byte("small")})); string(s.Assignment) != "small" {
		t.Fatalf("next generation: %v", s)
	}
}

func TestAnAnswerThatEndsAClientNeedsACertainLeader(t *testing.T) {
	r := newRig(t)
	static := func(e *group.Join) { e.Instance = "i" }
	first := wait(t, r.join("g", "", static))
	second := wait(t, r.join("g", "", static))
	if first.Code == second.Code && first.MemberID == second.MemberID {
		t.Fatal("the second did not take the first one's place")
	}
	r.part.change(func(p *fakeShard) { p.deposed = true })
	if code := r.beat("g", "stranger", "i", 1); code != group.NotCoordinator {
		t.Fatalf("who may be deposed answers %s", code)
	}
	r.part.change(func(p *fakeShard) { p.deposed = false })
	if code := r.beat("g", "stranger", "i", 1); code != group.FencedInstanceID {
		t.Fatalf("%s", code)
	}
}

func TestAnAnswerThatTakesAMembersPartitionsNeedsACertainLeader(t *testing.T) {
	r := newRig(t)
	j := r.member("g")
	r.part.change(func(p *fakeShard) { p.deposed = true }) // its successor may have begun the next generation
	if code := r.beat("g", j.MemberID, "", j.Generation+1); code != group.NotCoordinator {
		t.Fatalf("heartbeat in a generation that is not known: %s", code)
	}
	if s := wait(t, r.sync("g", group.Joined{MemberID: j.MemberID, Generation: j.Generation + 1}, nil)); s.Code != group.NotCoordinator {
		t.Fatalf("sync in a generation that is not known: %s", s.Code)
	}
	if code := wait(t, r.commit("g", "stranger", j.Generation, at(1, 5))); code != group.NotCoordinator {
		t.Fatalf("commit of a member that is not known: %s", code)
	}
	r.part.change(func(p *fakeShard) { p.deposed = false })
	if code := r.beat("g", j.MemberID, "", j.Generation+1); code != group.IllegalGeneration {
		t.Fatalf("%s", code)
	}
}

func TestADeletedGroupTakesItsOffsetsAlong(t *testing.T) {
	r := newRig(t)
	if code := r.remove("g"); code != group.GroupIDNotFound {
		t.Fatalf("a group that is not there: %s", code)
	}
	wait(t, r.commit("g", "", -1, at(0, 7)))
	if code := r.remove("g"); code != group.OK || r.committed("g", 0) != -1 {
		t.Fatalf("%s, offset %d", code, r.committed("g", 0))
	}
	j := r.member("h")
	wait(t, r.commit("h", j.MemberID, j.Generation, at(0, 7)))
	if code := r.remove("h"); code != group.NonEmptyGroup {
		t.Fatalf("a group with members: %s", code)
	}
	left := make(chan []group.Code, 1)
	r.g.Leave("h", group.Leave{Members: []group.Leaver{{MemberID: j.MemberID}}}, func(_ group.Code, codes []group.Code) { left <- codes })
	wait(t, left)
	if code := r.remove("h"); code != group.OK || r.committed("h", 0) != -1 {
		t.Fatalf("%s, offset %d", code, r.committed("h", 0))
	}
	if d := wait(t, r.describe("h")); d.State != "Dead" {
		t.Fatalf("%+v", d)
	}
}

// OffsetDelete takes nothing from under a member that reads the topic; what no member reads goes while the group is alive, and everything
// when it is empty.
func TestOffsetsOfTopicsThatMembersReadAreKeptAndOthersDeleted(t *testing.T) {
	r := newRig(t)
	remove := func(topics ...string) (codes []group.Code) {
		offsets := make([]Offset, len(topics))
		for i, topic := range topics {
			offsets[i] = Offset{Topic: topic}
		}
		c := make(chan []group.Code, 1)
		r.g.DeleteOffsets("g", offsets, func(code group.Code, codes []group.Code) { c <- append([]group.Code{code}, codes...) })
		return wait(t, c)
	}
	reads := kmsg.NewConsumerMemberMetadata()
	reads.Topics = []string{"t"}
	j := wait(t, r.join("g", "", func(e *group.Join) { e.Protocols[0].Metadata = reads.AppendTo(nil) }))
	wait(t, r.sync("g", j, map[string][]byte{j.MemberID: []byte("all")}))
	r.meta.set("other", 1)
	wait(t, r.commit("g", j.MemberID, j.Generation, at(0, 7), Offset{Topic: "other", Offset: 8, Epoch: -1}))
	if codes := remove("t", "other"); !slices.Equal(codes, []group.Code{group.OK, SubscribedToTopic, group.OK}) {
		t.Fatalf("codes %v", codes)
	}
	found, _ := r.fetch("g", Wanted{Topic: "t"}, Wanted{Topic: "other"})
	if found[0].Offset != 7 || found[1].Offset != -1 {
		t.Fatalf("%+v", found)
	}
	left := make(chan []group.Code, 1)
	r.g.Leave("g", group.Leave{Members: []group.Leaver{{MemberID: j.MemberID}}}, func(_ group.Code, codes []group.Code) { left <- codes })
	wait(t, left)
	if codes := remove("t"); !slices.Equal(codes, []group.Code{group.OK, group.OK}) || r.committed("g", 0) != -1 {
		t.Fatalf("codes %v of an empty group, offset %d", codes, r.committed("g", 0))
	}
}

func TestOffsetsOfDeletedTopicsGo(t *testing.T) {
	r := newRig(t)
	wait(t, r.commit("g", "", -1, at(0, 7)))
	r.meta.set("t", 0)
	wait(t, r.describe("g"))
	wait(t, r.describe("g")) // behind the outcome of what was appended
	if got := r.committed("g", 0); got != -1 {
		t.Fatalf("offset %d of a topic that is gone", got)
	}
}

// The topic's id tells whose offset it is: what the deleted topic's consumers committed is not shown to those of the next one of that name,
// neither before it is forgotten, nor by a coordinator that never saw the deletion; what is committed to the new one stays.
func TestOffsetsOfADeletedTopicAreNotThoseOfTheNextOneOfThatName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		of := func(number int32, offset int64) Offset {
			o := at(number, offset)
			o.TopicID = r.meta.Image().Topic("t").ID
			return o
		}
		fetch := func() group.Code {
			_, code := r.fetch("g", Wanted{Topic: "t"})
			return code
		}
		wait(t, r.commit("g", "", -1, of(0, 7), of(1, 7)))
		if r.committed("g", 0) != 7 {
			t.Fatal("not committed")
		}
		r.lose() // nobody leads while the topic becomes another one
		r.meta.set("t", 0)
		r.meta.set("t", 4)
		r.lead(2)
		if code := fetch(); code != LoadInProgress {
			t.Fatalf("an offset of the topic before: %s", code)
		}
		wait(t, r.commit("g", "", -1, of(1, 3)))
		time.Sleep(3 * sweepSoon)
		if a, b := r.committed("g", 0), r.committed("g", 1); a != -1 || b != 3 {
			t.Fatalf("offsets %d and %d, want none and 3", a, b)
		}
		r.meta.set("t", 4) // deleted and made anew in one step, under the coordinator's eyes
		wait(t, r.describe("g"))
		wait(t, r.describe("g"))
		if got := r.committed("g", 1); got != -1 {
			t.Fatalf("offset %d of the topic before", got)
		}
		r.g.Close()
	})
}

func TestASilentMemberLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.member("g")
		for range 10 {
			time.Sleep(9 * time.Second)
			if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
				t.Fatalf("a member that beats: %s", code)
			}
		}
		time.Sleep(11 * time.Second)
		if code := r.beat("g", j.MemberID, "", j.Generation); code != group.UnknownMemberID {
			t.Fatalf("a member that fell silent: %s", code)
		}
		r.g.Close()
	})
}

// A coordinator that was kept busy hears those out who spoke up meanwhile before it judges anybody's silence.
func TestNobodyIsExpiredForASlowCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.member("g")
		r.part.change(func(p *fakeShard) { p.slow = 15 * time.Second })
		commit := r.commit("other", "", -1, at(0, 7))
		time.Sleep(8 * time.Second)
		if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
			t.Fatalf("a heartbeat that waited: %s", code)
		}
		wait(t, commit)
		time.Sleep(time.Second)
		if code := r.beat("g", j.MemberID, "", j.Generation); code != group.OK {
			t.Fatalf("the next one: %s", code)
		}
		r.g.Close()
	})
}

func TestAGroupStaysWhileATransactionMayCommitItsOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		j := r.member("g")
		left := make(chan []group.Code, 1)
		r.g.Leave("g", group.Leave{Members: []group.Leaver{{MemberID: j.MemberID}}}, func(_ group.Code, codes []group.Code) { left <- codes })
		wait(t, left)
		w := &writer{next: 1 << 20}
		r.part.kept.Apply(w.batch(&record.Producer{ID: 1}, offsetOf("g", 0, 10)))
		time.Sleep(time.Hour)
		if d := wait(t, r.describe("g")); d.State != "Empty" {
			t.Fatalf("an hour later the group is %s", d.State)
		}
		r.part.kept.Apply(w.place(record.BuildControl(record.Commit, 1, 0, 1, 0)))
		if got := r.committed("g", 0); got != 10 {
			t.Fatalf("offset %d after the transaction", got)
		}
		r.g.Close()
	})
}

func TestOffsetsExpireWhenNobodyUsesThemAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Group.Retention = time.Hour })
		j := r.member("g")
		wait(t, r.commit("g", j.MemberID, j.Generation, at(0, 7)))
		wait(t, r.commit("loner", "", -1, at(0, 9)))
		for range 3 * 3600 / 9 {
			time.Sleep(9 * time.Second)
			r.beat("g", j.MemberID, "", j.Generation)
		}
		if r.committed("g", 0) != 7 || r.committed("loner", 0) != -1 {
			t.Fatalf("after three hours: %d of a group with a member, %d of one that nobody uses", r.committed("g", 0), r.committed("loner", 0))
		}
		time.Sleep(50 * time.Minute)
		if r.committed("g", 0) != 7 {
			t.Fatal("gone less than an hour after its last member")
		}
		time.Sleep(30 * time.Minute)
		if d := wait(t, r.describe("g")); r.committed("g", 0) != -1 || d.State != "Dead" {
			t.Fatalf("offset %d, group %s, more than an hour after its last member", r.committed("g", 0), d.State)
		}
		r.g.Close()
	})
}

func TestALogMuchLongerThanItsTableIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		wait(t, r.commit("g", "", -1, at(0, 7)))
		r.part.change(func(p *fakeShard) { p.size = trimFrom })
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		r.part.change(func(p *fakeShard) {
			if p.trimmedTo != p.next {
				t.Errorf("log trimmed to %d, want %d", p.trimmedTo, p.next)
			}
		})
		r.g.Close()
	})
}

func TestTheTopicIsMadeForAllNodesAndNotBeforeTheyAreThere(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Nodes = func() int { return 5 } })
	r.meta.set(OffsetsTopic, 0)
	r.meta.err = meta.ErrInvalidReplicationFactor
	if _, err := r.g.Ensure(context.Background()); err == nil {
		t.Fatal("made though brokers are missing")
	}
	r.meta.err = nil
	topic, err := r.g.Ensure(context.Background())
	if err != nil || len(topic.Partitions) != 16 || r.meta.spec.ReplicationFactor != 3 || !r.meta.spec.Internal {
		t.Fatalf("%+v %v", r.meta.spec, err)
	}
	if again, err := r.g.Ensure(context.Background()); err != nil || again != topic {
		t.Fatal("made twice")
	}
}

// A coordinator that was deposed and does not know it yet may miss what its successor committed: it shows nothing, and says nothing of which a
// client would draw that its group is gone.
func TestADeposedCoordinatorShowsNoOffsets(t *testing.T) {
	r := newRig(t)
	wait(t, r.commit("g", "", -1, at(0, 7)))
	r.part.change(func(p *fakeShard) { p.deposed = true })
	for _, want := range [][]Wanted{nil, {{Topic: "t"}}} {
		if found, code := r.fetch("g", want...); code != group.NotCoordinator || found != nil {
			t.Errorf("deposed: %v, %s", found, code)
		}
	}
	if code := wait(t, r.commit("nobody", "m", 3, at(0, 7))); code != group.NotCoordinator {
		t.Errorf("deposed, about a group that it does not know: %s", code)
	}
	r.part.change(func(p *fakeShard) { p.deposed = false })
	if found, code := r.fetch("g"); code != group.OK || len(found) != 1 || found[0].Offset != 7 {
		t.Errorf("leader: %v, %s", found, code)
	}
	if code := wait(t, r.commit("nobody", "m", 3, at(0, 7))); code != group.GroupIDNotFound {
		t.Errorf("leader, about a group that nobody knows: %s", code)
	}
}

// Asked by id a coordinator knows whose offset is meant; it need not wait until it has seen which topic has the name now.
func TestAnOffsetAskedForByIDIsThatTopicsOrNone(t *testing.T) {
	r := newRig(t)
	first := r.meta.Image().Topic("t").ID
	o := at(0, 7)
	o.TopicID = first
	wait(t, r.commit("g", "", -1, o, at(1, 9)))
	r.lose()
	r.meta.set("t", 0)
	r.meta.set("t", 4)
	r.lead(2)
	second := r.meta.Image().Topic("t").ID
	if _, code := r.fetch("g", Wanted{Topic: "t"}); code != LoadInProgress {
		t.Errorf("by name: %s", code)
	}
	for _, c := range []struct {
		Wanted
		offset int64
	}{
		{Wanted{"t", first, 0}, 7}, {Wanted{"t", second, 0}, -1},
		{Wanted{"t", second, 1}, 9}, // who committed it did not know the id
	} {
		if found, code := r.fetch("g", c.Wanted); code != group.OK || found[0].Offset != c.offset || found[0].Partition != c.Partition {
			t.Errorf("%v: %v, %s", c.Wanted, found, code)
		}
	}
}
