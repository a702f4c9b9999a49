package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"gopherlog/cmd/internal/cli"
)

type consumeCmd struct {
	Topic     string  `help:"Topic to read." required:"" placeholder:"NAME"`
	Partition []int32 `help:"Partitions to read. Default: all."`
	Offset    string  `help:"Where to begin: earliest, latest, an offset, or a time as in 2006-01-02T15:04:05Z. Default: ${default}." default:"earliest" placeholder:"WHERE"`
	All       bool    `help:"Read everything up to the present end, merge it by timestamp, and print it then."`
	Follow    bool    `help:"Go on with what comes, until Ctrl-C."`
	Count     int     `short:"n" help:"Stop after that many records. Default: no limit." placeholder:"N"`
	Isolation string  `help:"${enum}." enum:"read_uncommitted,read_committed" default:"read_committed"`
}

// delivered is one record as -o json shows it; key and value are base64 where they are not UTF-8.
type delivered struct {
	Topic       string            `json:"topic"`
	Partition   int32             `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   string            `json:"timestamp"`
	Key         *string           `json:"key"`
	KeyBase64   string            `json:"key_base64,omitempty"`
	Value       *string           `json:"value"`
	ValueBase64 string            `json:"value_base64,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// Run reads and prints.
func (c *consumeCmd) Run(s *session) error {
	if err := givenTopic(c.Topic); err != nil {
		return err
	}
	if c.Count < 0 {
		return cli.Usage(fmt.Errorf("-count is %d: give how many records, or leave it out for all", c.Count))
	}
	if c.All && c.Follow {
		return cli.Usage(errors.New("-all reads up to the present end and -follow goes on: give one of them"))
	}
	start, err := parseStart(c.Offset)
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	spans, err := c.spans(s, admin, start)
	if err != nil {
		return err
	}
	r := &reading{cmd: c, s: s, admin: admin, spans: spans, heard: time.Now()}
	if err := r.run(); err != nil {
		return err
	}
	return r.end()
}

// start is where reading begins.
type start struct {
	word   string // "earliest", "latest", or "" with one of:
	offset int64
	time   time.Time
}

func parseStart(text string) (start, error) {
	if text == "earliest" || text == "latest" {
		return start{word: text}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return start{offset: n}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return start{time: t}, nil
		}
	}
	return start{}, cli.Usage(fmt.Errorf("-offset is %q: give earliest, latest, a number, or a time as in 2006-01-02T15:04:05Z", text))
}

// span is what to read of one partition: offsets in [next, end).
type span struct{ next, end int64 }

// spans asks where each partition begins and ends now.
func (c *consumeCmd) spans(s *session, admin *kadm.Client, from start) (map[int32]*span, error) {
	ctx, cancel := s.limit()
	defer cancel()
	low, err := s.listOffsets(ctx, admin, c.Topic, admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	end, err := s.listOffsets(ctx, admin, c.Topic, admin.ListEndOffsets)
	if err != nil {
		return nil, err
	}
	first := low
	switch {
	case from.word == "latest":
		first = end
	case from.word == "" && !from.time.IsZero():
		at := func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, from.time.UnixMilli(), topics...)
		}
		if first, err = s.listOffsets(ctx, admin, c.Topic, at); err != nil {
			return nil, err
		}
	}
	out := map[int32]*span{}
	for p := range end {
		next := first[p]
		if from.word == "" && from.time.IsZero() {
			if from.offset < low[p] && len(c.Partition) > 0 {
				return nil, fmt.Errorf("%s partition %d begins at offset %d: offset %d is no longer there", c.Topic, p, low[p], from.offset)
			}
			next = max(from.offset, low[p])
		}
		if len(c.Partition) == 0 || slices.Contains(c.Partition, p) {
			out[p] = &span{next, end[p]}
		}
	}
	for _, p := range c.Partition {
		if out[p] == nil {
			return nil, noPartition(c.Topic, len(end), p)
		}
	}
	return out, nil
}

// offsetsPatience bounds how long an election is waited for, where the time to try is not shorter.
const offsetsPatience = 5 * time.Second

// askOffsets asks again while a partition has no leader yet: a topic that was
// just made, or a leader that just died.
func (s *session) askOffsets(ctx context.Context, topic string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	for until := time.Now().Add(min(offsetsPatience, s.timeout)); ; {
		listed, err := ask(ctx, topic)
		why := err
		if why == nil {
			why = listed.Error()
		}
		if !kerr.IsRetriable(why) || errors.Is(why, kerr.UnknownTopicOrPartition) || time.Now().After(until) {
			return listed, err
		}
		select {
		case <-ctx.Done():
			return listed, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *session) listOffsets(ctx context.Context, admin *kadm.Client, topic string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	listed, err := s.askOffsets(ctx, topic, ask)
	if err != nil {
		return nil, refused("ask for the offsets of "+topic, s.unled(admin, []string{topic}, err), "")
	}
	out := map[int32]int64{}
	for _, o := range listed[topic] {
		if errors.Is(o.Err, kerr.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("there is no topic %s", topic)
		}
		if o.Err != nil {
			return nil, refused("ask for the offsets of "+topic, s.unled(admin, []string{topic}, o.Err), "")
		}
		out[o.Partition] = o.Offset
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no topic %s", topic)
	}
	return out, nil
}

// reading is one run of consume.
type reading struct {
	cmd     *consumeCmd
	s       *session
	admin   *kadm.Client
	spans   map[int32]*span
	heard   time.Time     // when records came last, or the cluster was found well
	failure error         // the last one since
	kept    []*kgo.Record // for -all
	count   int
}

func (r *reading) run() error {
	if r.done() {
		return nil
	}
	at := map[int32]kgo.Offset{}
	for p, sp := range r.spans {
		if sp.next < sp.end || r.cmd.Follow {
			at[p] = kgo.NewOffset().At(sp.next)
		}
	}
	level := kgo.ReadCommitted()
	if r.cmd.Isolation == "read_uncommitted" {
		level = kgo.ReadUncommitted()
	}
	client, err := r.s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.cmd.Topic: at}),
		kgo.KeepControlRecords(), kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(500*time.Millisecond), kgo.KeepRetryableFetchErrors())
	if err != nil {
		return err
	}
	defer client.Close()
	for !r.done() {
		ctx, cancel := context.WithTimeout(r.s.ctx, pollWait)
		fetches := client.PollFetches(ctx)
		cancel()
		if r.s.ctx.Err() != nil {
			return nil // Ctrl-C: what was read counts
		}
		if err := r.take(fetches); err != nil {
			return err
		}
	}
	return nil
}

// pollWait is after how long without records the time is looked at.
const pollWait = time.Second

// take handles one answer, and looks for the cause when no record came for the length of the timeout.
func (r *reading) take(fetches kgo.Fetches) error {
	fetches.EachError(func(topic string, p int32, err error) {
		if topic != "" { // else it is the end of pollWait
			r.failure = refused(fmt.Sprintf("read %s partition %d", topic, p), err, "")
		}
	})
	quiet := fetches.Empty()
	if quiet && time.Since(r.heard) <= r.s.timeout {
		return nil
	}
	if quiet {
		if err := r.silence(); err != nil {
			return err
		}
	}
	r.heard, r.failure = time.Now(), nil
	for it := fetches.RecordIter(); !it.Done(); {
		if err := r.record(it.Next()); err != nil {
			return err
		}
	}
	return nil
}

// silence says why nothing comes. A topic that is followed may be quiet for as long as its partitions are served, whatever was in the way
// before, unless that does not pass.
func (r *reading) silence() error {
	ctx, cancel := r.s.limit()
	defer cancel()
	if err := r.s.ping(ctx, r.s.client); err != nil {
		return r.s.unreached(err)
	}
	if _, err := r.s.listOffsets(ctx, r.admin, r.cmd.Topic, r.admin.ListEndOffsets); err != nil {
		return err
	}
	var refusal *kerr.Error
	if r.cmd.Follow && (!errors.As(r.failure, &refusal) || refusal.Retriable) {
		return nil
	}
	return cmp.Or(r.failure, r.stuck())
}

// stuck names the first partition of which something is missing.
func (r *reading) stuck() error {
	for _, p := range slices.Sorted(maps.Keys(r.spans)) {
		sp, hint := r.spans[p], ""
		if sp.next >= sp.end {
			continue
		}
		if r.cmd.Isolation != "read_uncommitted" {
			hint = ": a transaction that is open holds back what follows it; see txn list and txn find-hanging, or read with -isolation read_uncommitted"
		}
		return fmt.Errorf("read %s partition %d: nothing comes from offset %d on, and it ends at %d%s", r.cmd.Topic, p, sp.next, sp.end, hint)
	}
	return nil
}

func (r *reading) record(rec *kgo.Record) error {
	sp := r.spans[rec.Partition]
	if rec.Offset < sp.next || rec.Offset >= sp.end && !r.cmd.Follow {
		return nil
	}
	sp.next = rec.Offset + 1
	switch {
	case rec.Attrs.IsControl(), r.full():
		return nil
	case r.cmd.All:
		r.kept = append(r.kept, rec)
		return nil
	}
	r.count++
	return r.s.printRecord(rec)
}

func (r *reading) full() bool { return r.cmd.Count > 0 && r.count >= r.cmd.Count }

// done says whether everything was read that was asked for.
func (r *reading) done() bool {
	if r.full() {
		return true
	}
	if r.cmd.Follow {
		return false
	}
	for _, sp := range r.spans {
		if sp.next < sp.end {
			return false
		}
	}
	return true
}

// end prints what -all has kept, and the closing line.
func (r *reading) end() error {
	slices.SortStableFunc(r.kept, func(a, b *kgo.Record) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for _, rec := range r.kept {
		if r.full() {
			break
		}
		if err := r.s.printRecord(rec); err != nil {
			return err
		}
		r.count++
	}
	if r.s.json {
		return nil
	}
	merged := ""
	if r.cmd.All {
		merged = ", merged by timestamp"
	}
	_, err := fmt.Fprintf(r.s.out, "-- %d message(s) across %d partition(s)%s\n", r.count, len(r.spans), merged)
	return err
}

func (s *session) printRecord(rec *kgo.Record) error {
	if s.json {
		return s.printJSON(asDelivered(rec))
	}
	key := ""
	if rec.Key != nil {
		key = " key=" + string(rec.Key)
	}
	_, err := fmt.Fprintf(s.out, "partition=%d offset=%d%s value=%s\n", rec.Partition, rec.Offset, key, rec.Value)
	return err
}

func asDelivered(rec *kgo.Record) delivered {
	d := delivered{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Timestamp: rec.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")}
	d.Key, d.KeyBase64 = text(rec.Key)
	d.Value, d.ValueBase64 = text(rec.Value)
	for _, h := range rec.Headers {
		if d.Headers == nil {
			d.Headers = map[string]string{}
		}
		d.Headers[h.Key] = string(h.Value)
	}
	return d
}

func text(b []byte) (*string, string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}
