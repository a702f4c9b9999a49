package kafkatx

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var clock = time.UnixMilli(1_000_000)

// rig is one machine with its log.
type rig struct {
	t       *testing.T
	cfg     Config
	state   State
	log     []*Meta // durable
	pending []*Meta
	now     time.Time
	id      int64 // next fresh producer id
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, cfg: Defaults(), now: clock, id: 100}
	r.state, _ = r.cfg.Boot(1, nil, r.now)
	return r
}

// from boots a machine from a record.
func from(t *testing.T, m *Meta) *rig {
	r := newRig(t)
	r.log = []*Meta{m}
	r.state, _ = r.cfg.Boot(1, m, r.now)
	return r
}

// do handles one event and returns the effects as text.
func (r *rig) do(e Event) string {
	r.t.Helper()
	before := r.state.String()
	next, effects := r.cfg.Handle(r.state, e, r.now)
	if r.state.String() != before {
		r.t.Fatalf("%T changed the state that it was given:\n%s\n%s", e, before, r.state)
	}
	r.state = next
	for _, f := range effects {
		switch f := f.(type) {
		case Append:
			r.pending = append(r.pending, f.Record)
		case Took:
			r.id++
		}
	}
	if _, ok := e.(Durable); ok && len(r.pending) > 0 {
		r.log = append(r.log, r.pending[0])
		r.pending = r.pending[1:]
	}
	return text(effects)
}

// settle makes everything durable and acknowledges every marker.
func (r *rig) settle() string {
	var all []string
	for {
		got := ""
		switch {
		case len(r.state.Pending) > 0:
			got = r.do(Durable{})
		case len(r.state.Unmarked) > 0:
			got = r.do(Marked{r.state.Unmarked[0], r.state.Meta.ProducerID, r.state.Meta.Epoch})
		default:
			return strings.Join(all, "; ")
		}
		if got != "" {
			all = append(all, got)
		}
	}
}

func (r *rig) newest() *Meta { return r.log[len(r.log)-1] }

// reload is a new leader that finds what was durable.
func (r *rig) reload() string {
	var newest *Meta
	if len(r.log) > 0 {
		newest = r.newest()
	}
	b := newest.EncodeValue()
	newest, err := DecodeValue(b)
	if err != nil {
		r.t.Fatal(err)
	}
	var effects []Effect
	r.pending = nil
	r.state, effects = r.cfg.Boot(r.state.Term+1, newest, r.now)
	for _, f := range effects {
		if a, ok := f.(Append); ok {
			r.pending = append(r.pending, a.Record)
		}
	}
	return text(effects)
}

func text(effects []Effect) string {
	out := make([]string, len(effects))
	for i, e := range effects {
		out[i] = fmt.Sprint(e)
	}
	return strings.Join(out, "; ")
}

// expect compares effects, timers left out.
func (r *rig) expect(e Event, want string) {
	r.t.Helper()
	if got := plain(r.do(e)); got != want {
		r.t.Fatalf("%T%+v in %s:\ngot  %q\nwant %q", e, e, r.state, got, want)
	}
}

// plain leaves out timers.
func plain(effects string) string {
	var out []string
	for f := range strings.SplitSeq(effects, "; ") {
		if !strings.HasPrefix(f, "set ") && !strings.HasPrefix(f, "clear ") {
			out = append(out, f)
		}
	}
	return strings.Join(out, "; ")
}

func parts(names ...int32) (out []Partition) {
	for _, n := range names {
		out = append(out, Partition{"t", n})
	}
	return out
}

func (r *rig) init(req Request) InitProducerID {
	return InitProducerID{Request: req, Timeout: time.Minute, ProducerID: None, Epoch: None, Fresh: r.id}
}

func (r *rig) resume(req Request, id int64, epoch int16) InitProducerID {
	e := r.init(req)
	e.ProducerID, e.Epoch = id, epoch
	return e
}

func (r *rig) add(req Request, id int64, epoch int16, v Version, names ...int32) AddPartitions {
	return AddPartitions{req, id, epoch, parts(names...), v}
}

func (r *rig) end(req Request, id int64, epoch int16, commit bool, v Version) EndTxn {
	return EndTxn{req, id, epoch, commit, v, r.id}
}

// meta is a record of producer 7.
func meta(status Status, epoch int16, v Version, partitions ...int32) *Meta {
	m := &Meta{Status: status, ProducerID: 7, Epoch: epoch, LastEpoch: None, Previous: 7, Next: None, Timeout: time.Minute, Start: None, Update: clock.UnixMilli(), Version: v}
	if status != Empty {
		m.Partitions, m.Start = parts(partitions...), clock.UnixMilli()
	}
	if v == Version2 && status != Ongoing && status != Empty {
		m.LastEpoch = epoch - 1
	}
	return m
}
