package broker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/partition"
	"gopherlog/engine/wire"
)

var fetchAPI = api{
	key: 1, name: "Fetch", min: 4, max: 18,
	maxFrame: maxControlFrame,
	serve:    serveFetch,
	notes: []string{
		"Whole batches from the one that contains the offset; at least one batch of one partition even above the limits (KIP-74).",
		"Parked until min bytes, max wait, an error or a change of leader; no polling.",
		"A partition that is between leaders (this node was elected and does not serve yet, knows no leader, or does not know the client's epoch yet) is no error yet: the fetch is parked until that is over, at most half a second, or until there is enough of the other partitions.",
		"Every fetch is a full fetch: the session id is always 0, and going on with a session is answered with FETCH_SESSION_ID_NOT_FOUND.",
		"From version 9 an older leader epoch is FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH; from version 12 a last fetched epoch that left the leader's log is answered with the diverging epoch.",
		"From version 13 topics are named by id: UNKNOWN_TOPIC_ID without such a topic, INCONSISTENT_TOPIC_ID while this node still carries another creation of its name.",
		"From version 16 NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH come with the leader, its epoch and its address, if they are known (KIP-951).",
		"Only leaders answer; files go to the socket by sendfile from 64 KiB on. What followers of Kafka say of themselves (replica state, directory, high watermark) is ignored.",
	},
}

// fetchCall is a fetch request until its answer has left; then its memory serves another one.
type fetchCall struct {
	b       *Broker
	api     *api
	req     *wire.Request
	msg     kmsg.FetchRequest // its strings alias the request's buffer
	started time.Time
	parts   []fetchPart
	bytes   int
	failed  bool // some partition has an error or left the leader's log: answer at once
	between int  // partitions between leaders
	hints   leaderHints
	out     fetchEncoder
	done    func() // over, bound once
}

// maxKeptParts is the largest request whose memory is kept for the next one.
const maxKeptParts = 64

func (b *Broker) newFetch(a *api, r *wire.Request) *fetchCall {
	f, ok := b.fetches.Get().(*fetchCall)
	if !ok {
		f = &fetchCall{b: b}
		f.done = f.over
	}
	f.api, f.req, f.started, f.bytes, f.failed, f.between = a, r, b.cfg.Now(), 0, false, 0
	return f
}

// over is called when nobody needs what was read any more.
func (f *fetchCall) over() {
	for i := range f.parts {
		f.drop(&f.parts[i])
	}
	if cap(f.parts) > maxKeptParts || cap(f.msg.Topics) > maxKeptParts {
		return
	}
	clear(f.parts)
	clear(f.msg.Topics)
	f.req, f.parts, f.msg.Topics, f.hints = nil, f.parts[:0], f.msg.Topics[:0], leaderHints{}
	f.b.fetches.Put(f)
}

// fetchPart is one partition of the request and what was found there.
type fetchPart struct {
	in     *kmsg.FetchRequestTopicPartition
	topic  *meta.Topic // nil: there is none
	part   Partition
	res    partition.ReadResult
	code   int16
	parked bool
	// unsettled is the code that the client gets unless the partition, which is between leaders, settles first.
	unsettled int16
	hint      *leaderHint // whom to ask instead; nil: nobody is known, or the version has no place for it
}

func serveFetch(b *Broker, a *api, r *wire.Request) {
	f := b.newFetch(a, r)
	f.msg.SetVersion(r.Version)
	if err := f.msg.UnsafeReadFrom(r.Body); err != nil {
		b.drop(a, r, fmt.Errorf("%w: body: %w", wire.ErrFrame, err))
		return
	}
	if f.msg.SessionEpoch > 0 { // it goes on with a session; 0 and -1 are whole fetches, whatever id they name (KIP-227)
		f.refuseSession()
		return
	}
	f.resolve()
	for i := range f.parts {
		f.read(&f.parts[i])
	}
	if f.satisfied() || f.wait() <= 0 || !b.parked.start(f) {
		f.reply()
	}
}

// wait is for how long the client allows its fetch to be parked.
func (f *fetchCall) wait() time.Duration {
	return min(time.Duration(f.msg.MaxWaitMillis)*time.Millisecond, f.b.cfg.MaxFetchWait)
}

func (f *fetchCall) refuseSession() {
	resp := kmsg.NewPtrFetchResponse()
	resp.ErrorCode = f.b.count(f.api, codeFetchSessionIDNotFound)
	f.req.ReplyMessageWait(resp)
	f.b.observe(f.api, f.started)
}

// resolve finds the replicas that the request is about.
func (f *fetchCall) resolve() {
	n := 0
	for i := range f.msg.Topics {
		n += len(f.msg.Topics[i].Partitions)
	}
	f.parts = slices.Grow(f.parts[:0], n)
	image := f.b.cfg.Meta.Image()
	for i := range f.msg.Topics {
		t := &f.msg.Topics[i]
		for j := range t.Partitions {
			in := &t.Partitions[j]
			p, topic, code := f.find(image, t, in.Partition)
			f.parts = append(f.parts, fetchPart{in: in, topic: topic, part: p, code: f.b.count(f.api, code)})
			f.failed = f.failed || code != codeNone
		}
	}
}

func (f *fetchCall) find(image *meta.Image, t *kmsg.FetchRequestTopic, number int32) (Partition, *meta.Topic, int16) {
	if f.req.Version >= fetchNamesByID {
		return f.b.findByID(image, t.TopicID, number)
	}
	return f.b.find(image, t.Topic, number)
}

// read reads one partition within what the others have left of the response's size.
func (f *fetchCall) read(p *fetchPart) {
	f.drop(p)
	if p.part == nil {
		return
	}
	if p.unsettled != codeNone {
		p.unsettled = codeNone
		f.between--
	}
	left := max(int(min(f.msg.MaxBytes, f.b.cfg.MaxFetchBytes))-f.bytes, 0)
	res, err := p.part.Read(partition.ReadRequest{
		Offset: p.in.FetchOffset, MaxBytes: min(left, max(int(p.in.PartitionMaxBytes), 0)), MinOne: f.bytes == 0,
		CurrentEpoch: p.in.CurrentLeaderEpoch, LastFetchedEpoch: p.in.LastFetchedEpoch, Isolation: f.msg.IsolationLevel,
	})
	p.res = res
	if p.between(err) {
		p.unsettled = codeOf(err)
		f.between++
		return
	}
	p.code = f.b.count(f.api, codeOf(err))
	if res.Slice != nil {
		f.bytes += res.Slice.Bytes
	}
	f.failed = f.failed || err != nil || res.DivergingEpoch >= 0
}

// between says whether a read failed since the partition is between leaders, or was a moment ago: then it can be read again.
func (p *fetchPart) between(err error) bool {
	if !errors.Is(err, partition.ErrNotLeader) && !errors.Is(err, partition.ErrUnknownEpoch) {
		return false
	}
	if p.part.Unsettled(p.in.CurrentLeaderEpoch) {
		return true
	}
	_, err = p.part.CheckEpoch(p.in.CurrentLeaderEpoch)
	return err == nil
}

// drop gives back what was read before.
func (f *fetchCall) drop(p *fetchPart) {
	if p.res.Slice != nil {
		f.bytes -= p.res.Slice.Bytes
		p.res.Slice.Release()
		p.res.Slice = nil
	}
}

func (f *fetchCall) satisfied() bool {
	return f.failed || len(f.parts) == 0 || f.bytes > 0 && f.bytes >= int(f.msg.MinBytes) || f.msg.MinBytes <= 0
}

// park waits until the fetch is satisfied or its time is up, and answers. It reads again only what moved. f belongs to its
// answer afterwards.
func (f *fetchCall) park(k *parker, stop <-chan struct{}) {
	k.timer.Reset(f.wait())
	gone := f.await(k, stop)
	k.timer.Stop()
	k.settle.Stop()
	f.unpark(k.waiter)
	if gone {
		f.abandon()
	} else {
		f.reply()
	}
}

// await returns when the fetch is to be answered, or its connection is gone.
func (f *fetchCall) await(k *parker, stop <-chan struct{}) (gone bool) {
	end := f.req.Conn.Context().Done()
	held := false
	for !f.catchUp(k.waiter) {
		if held != (f.between > 0) {
			if held = !held; held {
				k.settle.Reset(settleLimit)
			} else {
				k.settle.Stop()
			}
		}
		select {
		case <-k.waiter.C:
			f.reread()
		case <-k.settle.C:
			return false
		case <-k.timer.C:
			return false
		case <-stop:
			return false
		case <-end:
			return true
		}
	}
	return false
}

// catchUp parks the fetch on every partition; what moved in between is read. It reports that the fetch is satisfied.
func (f *fetchCall) catchUp(w *partition.Waiter) bool {
	for i := range f.parts {
		p := &f.parts[i]
		for !p.parked {
			if f.satisfied() {
				return true
			}
			if p.parked = f.parkOn(p, w); !p.parked {
				f.read(p)
			}
		}
	}
	return f.satisfied()
}

func (f *fetchCall) parkOn(p *fetchPart, w *partition.Waiter) bool {
	if p.unsettled != codeNone {
		return p.part.AwaitLeader(w, p.in.CurrentLeaderEpoch)
	}
	return p.part.Park(w, f.end(p), p.res.LeaderEpoch, f.msg.IsolationLevel)
}

// end is the end of what the client could see when p was read.
func (f *fetchCall) end(p *fetchPart) int64 {
	if f.msg.IsolationLevel == partition.ReadCommitted {
		return p.res.LastStable
	}
	return p.res.HighWatermark
}

// reread reads what moved since the fetch was parked. Nothing moved where it still stands, unless a wake-up said no more
// than that something may have: then all are parked again.
func (f *fetchCall) reread() {
	moved := false
	for i := range f.parts {
		p := &f.parts[i]
		if p.moved() {
			p.parked = false
			f.read(p)
			moved = true
		}
	}
	for i := range f.parts {
		f.parts[i].parked = f.parts[i].parked && moved && f.parts[i].unsettled == codeNone
	}
}

func (p *fetchPart) moved() bool {
	if p.unsettled != codeNone {
		return !p.part.Unsettled(p.in.CurrentLeaderEpoch)
	}
	_, epoch, ready := p.part.Leader()
	return p.part.HighWatermark() != p.res.HighWatermark || p.part.LastStable() != p.res.LastStable || !ready || epoch != p.res.LeaderEpoch
}

func (f *fetchCall) unpark(w *partition.Waiter) {
	for i := range f.parts {
		if f.parts[i].part != nil {
			f.parts[i].part.Unpark(w)
		}
	}
}

// abandon ends a fetch whose connection is gone.
func (f *fetchCall) abandon() {
	f.req.ReplyNone()
	f.over()
}

// reply sends what was read. f is given back when the last byte has left, so nothing of it is touched behind the answer.
func (f *fetchCall) reply() {
	b, a, started := f.b, f.api, f.started
	f.giveUp()
	b.metrics.bytesOut.Add(float64(f.bytes))
	if f.failed && f.req.Version >= fetchHasLeaderHint {
		f.pointToLeaders()
	}
	f.req.ReplyWait(encodeFetch(f))
	b.observe(a, started)
}

// giveUp makes an error of what is still between leaders when the answer is due.
func (f *fetchCall) giveUp() {
	for i := 0; f.between > 0 && i < len(f.parts); i++ {
		if p := &f.parts[i]; p.unsettled != codeNone {
			p.code, p.unsettled, f.failed = f.b.count(f.api, p.unsettled), codeNone, true
			f.between--
		}
	}
}

// pointToLeaders says of every partition that is led elsewhere, or by a newer term, who leads it.
func (f *fetchCall) pointToLeaders() {
	f.hints.image = f.b.cfg.Meta.Image()
	for i := range f.parts {
		if p := &f.parts[i]; p.code == codeNotLeaderOrFollower || p.code == codeFencedLeaderEpoch {
			p.hint = f.hints.of(f.b, p.topic, p.in.Partition)
		}
	}
}
