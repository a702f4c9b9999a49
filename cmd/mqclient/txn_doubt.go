package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/twopc"
)

// doubtOf says where the id is in doubt while its coordinator is not there to be asked; nil: nowhere, or it is there.
func (s *session) doubtOf(admin *kadm.Client, id string) error {
	if there, err := s.coordinatorsThere(id); there[id] || err != nil {
		return nil
	}
	ctx, cancel := s.limit()
	defer cancel()
	open, _ := s.openIn(ctx, admin, "") // what can be seen
	var places []string
	longest := -1.0
	for _, h := range open {
		if h.ID == id {
			places, longest = append(places, fmt.Sprintf("%s:%d at offset %d", h.Topic, h.Partition, h.Offset)), max(longest, h.InDoubt)
		}
	}
	if len(places) == 0 {
		return nil
	}
	return fmt.Errorf("describe %s: in doubt for %s in %s: nobody leads its coordinator, which alone knows the outcome; if that is lost, end it with txn abort -topic -offset",
		id, age(longest), strings.Join(places, ", "))
}

// coordinatorsThere asks which transactional ids have a coordinator now.
func (s *session) coordinatorsThere(ids ...string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := s.limit()
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 1
	slices.Sort(ids)
	req.CoordinatorKeys = slices.Compact(ids)
	var resp kmsg.Response
	err := errors.New("no node is known")
	for _, b := range s.client.DiscoveredBrokers() { // of one node, without the client's own repeats: that there is none is an answer
		if resp, err = b.Request(ctx, req); err == nil {
			break
		}
	}
	if err != nil {
		return nil, refused("find coordinators", err, "")
	}
	there := map[string]bool{}
	for _, c := range resp.(*kmsg.FindCoordinatorResponse).Coordinators {
		err := kerr.ErrorForCode(c.ErrorCode)
		if err != nil && !away(err) {
			return nil, refused("find the coordinator of "+c.Key, err, said(c.ErrorMessage))
		}
		there[c.Key] = err == nil
	}
	return there, nil
}

// decree ends what was promised and whose coordinator is lost. That is the operator's decision: others may have been told COMMIT. Where that
// can be seen, or cannot be told, he has to say which outcome it was.
func (s *session) decree(admin *kadm.Client, h hangingLine, outcome string) error {
	if outcome == "" {
		if err := s.untold(admin, h); err != nil {
			return err
		}
	}
	ctx, cancel := s.limit()
	defer cancel()
	details, err := admin.ListTopicsWithInternal(ctx, h.Topic)
	if err != nil {
		return refused("abort", err, "")
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = h.Producer, h.Epoch, outcome == "commit"
	m.UnknownTags.Set(twopc.TagTransactionalID, []byte(h.ID))
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = h.Topic, []int32{h.Partition}
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	resp, err := s.client.Broker(int(details[h.Topic].Partitions[h.Partition].Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return refused("abort", err, "")
	}
	for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return refused(fmt.Sprintf("abort in %s-%d", t.Topic, p.Partition), err, whyNoDecree(h.ID, err))
				}
			}
		}
	}
	did := "aborted"
	if outcome == "commit" {
		did = "committed"
	}
	return s.print(h, "%s what %s promised in %s-%d at offset %d, as you decide: what its client and other partitions were told stays", did, h.ID, h.Topic, h.Partition, h.Offset)
}

// untold fails if a partition may have been told the outcome of what is in doubt elsewhere.
func (s *session) untold(admin *kadm.Client, h hangingLine) error {
	ctx, cancel := s.limit()
	defer cancel()
	all, err := s.producersIn(ctx, admin, "")
	if err != nil && !isUnheard(err) {
		return err
	}
	if told := toldOf(h, all); len(told) > 0 {
		return fmt.Errorf("abort: %s of %s is over in %s: look there with consume -isolation read_committed, and say with -outcome commit or abort what became of it",
			h.ID, h.identity(), strings.Join(told, ", "))
	}
	if err != nil {
		return refused("abort", err, fmt.Sprintf("whether other partitions were told the outcome of %s cannot be seen: wait until all are led, or say with -outcome commit or abort what it was", h.ID))
	}
	return nil
}

// toldOf are the partitions where the transaction that is in doubt is over, or, with a client of version 0, one before under the same epoch.
func toldOf(h hangingLine, all []hangingLine) (told []string) {
	for _, x := range all {
		if x.Producer == h.Producer && x.Epoch >= h.Epoch && x.Offset < 0 {
			told = append(told, fmt.Sprintf("%s:%d", x.Topic, x.Partition))
		}
	}
	return told
}

func (h hangingLine) identity() string { return fmt.Sprintf("producer %d:%d", h.Producer, h.Epoch) }

// whyNoDecree says why a partition does not take an operator's decision, where the error alone does not.
func whyNoDecree(id string, err error) string {
	switch {
	case errors.Is(err, kerr.NotCoordinator):
		return fmt.Sprintf("the coordinator of %s may come back and know that it told COMMIT: start the node that holds its log, with an empty disk if the disk is lost; see cluster status", id)
	case errors.Is(err, kerr.InvalidTxnState):
		return "it is in doubt for less than ten seconds, or no more: see txn find-hanging"
	}
	return ""
}
