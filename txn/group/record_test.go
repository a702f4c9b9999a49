package group

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/field"
)

func sample() *Record {
	return &Record{ProtocolType: "consumer", Generation: 7, Protocol: "range", Leader: "a", Since: 99, Members: []RecordMember{
		{"a", "", "c", "/h", time.Minute, 10 * time.Second, []byte{1}, []byte{2, 3}},
		{"b", "i", "", "", 0, time.Second, nil, nil},
	}}
}

func theirs(r *Record, version int16) kmsg.GroupMetadataValue {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.ProtocolType, v.Generation, v.CurrentStateTimestamp = version, r.ProtocolType, r.Generation, r.Since
	v.Protocol, v.Leader = nullable(r.Protocol), nullable(r.Leader)
	for _, m := range r.Members {
		o := kmsg.NewGroupMetadataValueMember()
		o.MemberID, o.InstanceID, o.ClientID, o.ClientHost = m.ID, nullable(m.Instance), m.ClientID, m.ClientHost
		o.RebalanceTimeoutMillis, o.SessionTimeoutMillis = int32(m.Rebalance.Milliseconds()), int32(m.Session.Milliseconds())
		o.Subscription, o.Assignment = m.Subscription, m.Assignment
		v.Members = append(v.Members, o)
	}
	return v
}

// TestRecordsAreKafkas compares bytes with an independent client's codec.
func TestRecordsAreKafkas(t *testing.T) {
	for _, r := range []*Record{sample(), {ProtocolType: "consumer", Generation: 3, Since: 5}} {
		v := theirs(r, 3)
		if got, want := r.Encode(), v.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%v:\ngot  %x\nwant %x", r, got, want)
		}
	}
	begun := sample()
	begun.Unassigned = true
	v := theirs(begun, 4)
	v.UnknownTags.Set(unassignedTag, nil)
	if got, want := begun.Encode(), v.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("generation without assignment:\ngot  %x\nwant %x", got, want)
	}
	k := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	if got, want := (Key{Group: "g"}).Encode(), k.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("key of a group:\ngot  %x\nwant %x", got, want)
	}
	ok := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t", Partition: 4}
	if got, want := (Key{"g", "t", 4}).Encode(), ok.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("key of an offset:\ngot  %x\nwant %x", got, want)
	}
	ov := kmsg.OffsetCommitValue{Version: 3, Offset: 12, LeaderEpoch: 5, Metadata: "m", CommitTimestamp: 77}
	if got, want := (Offset{12, 5, "m", 77, -1, [16]byte{}}).Encode(), ov.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("offset:\ngot  %x\nwant %x", got, want)
	}
	ov.Version, ov.TopicID = 4, [16]byte{3: 1}
	if got, want := (Offset{12, 5, "m", 77, -1, [16]byte{3: 1}}).Encode(), ov.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("offset with the topic's id:\ngot  %x\nwant %x", got, want)
	}
}

func TestRecordsOfEveryVersionAreRead(t *testing.T) {
	for version := range int16(5) {
		r := sample()
		v := theirs(r, version)
		if version < 3 {
			r.Members[1].Instance = ""
		}
		if version < 2 {
			r.Since = -1
		}
		if version < 1 {
			for i := range r.Members {
				r.Members[i].Rebalance = r.Members[i].Session
			}
		}
		b := v.AppendTo(nil)
		got, err := DecodeRecord(b)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		got.Members[1].Subscription, got.Members[1].Assignment = nil, nil // empty or nil: one and the same
		if !reflect.DeepEqual(got, r) {
			t.Errorf("version %d:\ngot  %+v\nwant %+v", version, got, r)
		}
		for n := range b {
			if _, err := DecodeRecord(b[:n]); err == nil {
				t.Fatalf("version %d: %d of %d bytes were accepted", version, n, len(b))
			}
		}
		ov := kmsg.OffsetCommitValue{Version: version, Offset: 12, LeaderEpoch: 5, Metadata: "m", CommitTimestamp: 77, ExpireTimestamp: 88, TopicID: [16]byte{1}}
		want := Offset{Offset: 12, LeaderEpoch: -1, Metadata: "m", Committed: 77, Expires: -1}
		if version >= 4 {
			want.TopicID = [16]byte{1}
		}
		if version >= 3 {
			want.LeaderEpoch = 5
		}
		if version == 1 {
			want.Expires = 88
		}
		if got, err := DecodeOffset(ov.AppendTo(nil)); err != nil || got != want {
			t.Errorf("offset of version %d: %+v, %v", version, got, err)
		}
	}
	if r, err := DecodeRecord(nil); r != nil || err != nil {
		t.Errorf("tombstone: %v %v", r, err)
	}
}

func TestUnknownVersionsAreRefusedAsVersions(t *testing.T) {
	b := sample().Encode()
	b[1] = 5
	if _, err := DecodeRecord(b); !errors.Is(err, ErrVersion) {
		t.Errorf("group: %v", err)
	}
	o := Offset{}.Encode()
	o[1] = 5
	if _, err := DecodeOffset(o); !errors.Is(err, ErrVersion) {
		t.Errorf("offset: %v", err)
	}
	k := Key{Group: "g"}.Encode()
	k[1] = 3 // Kafka's newer groups are in the same topic
	if _, err := DecodeKey(k); !errors.Is(err, ErrVersion) {
		t.Errorf("key: %v", err)
	}
}

func TestAMemberThatIsThereTwiceIsDamage(t *testing.T) {
	for _, change := range []func(*Record){
		func(r *Record) { r.Members[1].ID = "a" },
		func(r *Record) { r.Members[0].Instance = "i" },
	} {
		r := sample()
		change(r)
		if _, err := DecodeRecord(r.Encode()); !errors.Is(err, field.ErrMalformed) {
			t.Errorf("%v: %v", r, err)
		}
	}
	r := sample()
	r.Leader = "nobody"
	s, _ := Defaults().Boot(r, clock)
	if s.Leader != "a" {
		t.Errorf("a leader that is not there: %v", s)
	}
}

// FuzzDecode: no input panics, boots into a state that panics, or comes back different.
func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	begun := sample()
	begun.Unassigned = true
	f.Add(begun.Encode())
	f.Add(Offset{12, 5, "m", 77, -1, [16]byte{}}.Encode())
	f.Add(Offset{12, 5, "m", 77, -1, [16]byte{7}}.Encode())
	f.Add(Key{"g", "t", 4}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := DecodeKey(b); err == nil {
			if again, err := DecodeKey(k.Encode()); err != nil || again != k {
				t.Fatalf("%+v came back as %+v, %v", k, again, err)
			}
		}
		if o, err := DecodeOffset(b); err == nil {
			again, err := DecodeOffset(o.Encode())
			if o.Expires = -1; err != nil || again != o {
				t.Fatalf("%+v came back as %+v, %v", o, again, err)
			}
		}
		r, err := DecodeRecord(b)
		if err != nil || r == nil {
			return
		}
		s, _ := Defaults().Boot(r, clock)
		s, _ = Defaults().Handle(s, enter(1, "n"), clock)
		_, _ = Defaults().Handle(s, Timer{Kind: TimerRebalance}, clock)
		again, err := DecodeRecord(r.Encode())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%v came back as %v, %v", r, again, err)
		}
	})
}
