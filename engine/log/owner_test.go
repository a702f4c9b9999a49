package log

import (
	"bytes"
	"testing"
)

// pooled is an owner that poisons its memory when the last hold ends.
type pooled struct {
	b     []byte
	holds int
}

func (p *pooled) Hold() {
	if p.holds++; p.holds <= 1 {
		panic("hold of free memory")
	}
}

func (p *pooled) Drop() {
	if p.holds--; p.holds == 0 {
		for i := range p.b {
			p.b[i] = 0xA5
		}
	}
	if p.holds < 0 {
		panic("dropped too often")
	}
}
func (p *pooled) Cap() int { return len(p.b) }

// lease puts a data entry into memory of its own, held once.
func lease(e Entry) (Entry, *pooled) {
	p := &pooled{b: bytes.Clone(e.Data), holds: 1}
	e.Data, e.Owner = p.b, p
	return e, p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The log holds pooled bytes while its cache may hand them out, whoever asks gets a hold of his own, and each way out of the
// cache ends exactly the log's.
func TestPooledBytesAreHeldWhileTheyCanBeRead(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, r *rig){
		"replicated":         func(t *testing.T, r *rig) { r.log.Replicated(2) },
		"truncated":          func(t *testing.T, r *rig) { must(t, r.log.TruncateSuffix(2)) },
		"reset":              func(t *testing.T, r *rig) { must(t, r.log.Reset(Base{Index: 9, Term: 1, NextOffset: 9})) },
		"idle":               func(t *testing.T, r *rig) { r.log.shrinkCache(0) },
		"closed":             func(t *testing.T, r *rig) { must(t, r.log.Close()) },
		"followed by others": func(t *testing.T, r *rig) { must(t, r.log.AppendBorrowed([]Entry{data(3, 1, 1, 10)})) },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRig(t, nil), newTwin()
			e, p := lease(data(2, 1, 1, 70<<10))
			r.append(data(1, 1, 1, 10))
			if err := r.log.Append([]Entry{e}); err != nil {
				t.Fatal(err)
			}
			want := bytes.Clone(e.Data) // stamped
			p.Drop()                    // the producer's
			if p.holds != 1 {
				t.Fatalf("the cache has %d holds, want 1", p.holds)
			}
			lent, err := r.log.Lend(1, 3, 1<<20)
			if err != nil || len(lent) != 2 || lent[1].Owner != p || p.holds != 2 {
				t.Fatalf("lent %d entries, %d holds, %v", len(lent), p.holds, err)
			}
			head, err := r.log.EntryHeader(2)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := r.log.Entry(2)
			if err != nil {
				t.Fatal(err)
			}
			leave(t, r)
			if p.holds != 1 || !bytes.Equal(lent[1].Data, want) {
				t.Fatalf("%d holds, want the borrower's only", p.holds)
			}
			p.Drop()
			if lent[1].Data[0] != 0xA5 {
				t.Fatal("nothing holds the memory, but it was not given back")
			}
			if !bytes.Equal(whole.Data, want) || !bytes.Equal(head.Data, want[:len(head.Data)]) {
				t.Fatal("what Entry returned lay in pooled memory")
			}
		})
	}
}

func TestPooledBytesOfAFailedAppendAreNotHeld(t *testing.T) {
	r := newRig(t, nil)
	e, p := lease(data(5, 1, 1, 70<<10)) // not the next index
	if err := r.log.Append([]Entry{e}); err == nil {
		t.Fatal("no error")
	}
	if p.holds != 1 {
		t.Fatalf("%d holds after a failed append", p.holds)
	}
}

// A batch that is a small part of its buffer is copied: it must not keep the rest from being used.
func TestSmallPartsOfABufferAreCopied(t *testing.T) {
	r := newRig(t, nil)
	e, p := lease(data(1, 1, 1, 1000))
	p.b = make([]byte, 64<<10)
	r.append(e)
	if p.holds != 1 {
		t.Fatalf("%d holds, want the producer's only", p.holds)
	}
}

// While peers lag, pooled bytes are bounded like all that the cache holds.
func TestPooledBytesThatNobodyTookAreBounded(t *testing.T) {
	budget := NewBudget(1 << 20)
	r := newRig(t, func(c *Config) { c.CacheBytes, c.CacheBudget = 100<<10, budget })
	var all []*pooled
	for i := uint64(1); i <= 20; i++ {
		e, p := lease(data(i, 1, 1, 70<<10))
		r.append(e)
		p.Drop()
		all = append(all, p)
	}
	held := 0
	for _, p := range all {
		held += p.holds
	}
	if held == 0 || held > 5 || budget.Used() > ownedFactor*100<<10 {
		t.Fatalf("%d of 20 batches are held, %d bytes charged", held, budget.Used())
	}
	r.log.Replicated(20)
	if used := budget.Used(); used > 10<<10 {
		t.Fatalf("%d bytes charged for headers", used)
	}
}
