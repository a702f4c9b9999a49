package replica

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"gopherlog/cluster/rpc"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

func TestSnapshotStateRoundTrip(t *testing.T) {
	conf := raft.EncodeConfiguration(configuration([]rpc.ServerID{"1.a", "2.b"}))
	b := log.Base{Index: 7, Term: 3, NextOffset: 41, LogStart: 12, State: encodeState(conf, 5, []byte("fsm"))}
	got, err := decodeBase(encodeBase(b))
	if err != nil || got.Index != 7 || got.Term != 3 || got.NextOffset != 41 || got.LogStart != 12 {
		t.Fatalf("base is %+v, %v", got, err)
	}
	st, err := decodeState(got.State)
	if err != nil || st.confIndex != 5 || !bytes.Equal(st.conf, conf) || string(st.fsm) != "fsm" {
		t.Errorf("state is %+v, %v", st, err)
	}
}

func TestUnknownSnapshotVersionIsRefusedAsAVersion(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"base":  func(b []byte) error { _, err := decodeBase(b); return err },
		"state": func(b []byte) error { _, err := decodeState(b); return err },
		"control entry": func(b []byte) error {
			return decodeControlEntry(1, append(b, make([]byte, 20)...), new(raft.Log))
		},
	} {
		if err := decode([]byte{9}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("version 9")) {
			t.Errorf("%s of version 9: %v, want a refusal of the version", name, err)
		}
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(encodeBase(log.Base{Index: 1, State: encodeState(nil, 0, nil)}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if base, err := decodeBase(b); err == nil {
			if st, err := decodeState(base.State); err == nil {
				_, _ = decodeConfiguration(st.conf)
			}
		}
		_, _, _ = decodeSnapshot("x", b)
		_ = decodeControlEntry(1, b, new(raft.Log))
	})
}

func TestDamagedControlSnapshotIsSkippedForAnOlderOne(t *testing.T) {
	fs := vfs.NewCrashable()
	s, err := openFileSnapshots(fs, "control")
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 3; i++ {
		sink, err := s.Create(1, i*10, 2, configuration([]rpc.ServerID{"1.a"}), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	}
	metas, err := s.List()
	if err != nil || len(metas) != snapshotsKept || metas[0].Index != 30 {
		t.Fatalf("%d snapshots, %v; want %d, the newest at 30", len(metas), err, snapshotsKept)
	}
	name := s.path(metas[0].ID)
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := vfs.WriteFileAtomic(fs, name, b); err != nil {
		t.Fatal(err)
	}
	metas, err = s.List()
	if err != nil || len(metas) != 1 || metas[0].Index != 20 {
		t.Errorf("snapshots %v, %v; want only the one at 20", metas, err)
	}
}
