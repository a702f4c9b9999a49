package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/producer"
)

// A request of some kilobytes that names one large thing thousands of times would otherwise be answered with gigabytes.
func TestWhatARequestNamesAgainIsAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	w.coordinateTxns()
	w.part("t", 0).producers = []producer.Producer{{ID: 7, LastSequence: -1, CoordinatorEpoch: -1, Transaction: -1}}
	w.initTxn("x")
	c := w.dial()
	c.ask(commitOf("g", 0, 5, "long"))

	groups := kmsg.NewPtrDescribeGroupsRequest()
	groups.Version, groups.Groups = 5, []string{"g", "h", "g", "g"}
	if got := c.ask(groups).(*kmsg.DescribeGroupsResponse).Groups; len(got) != 2 || got[0].Group != "g" || got[1].Group != "h" {
		t.Errorf("groups: %+v", got)
	}
	txns := kmsg.NewPtrDescribeTransactionsRequest()
	txns.TransactionalIDs = []string{"x", "x", "y", "x"}
	if got := c.ask(txns).(*kmsg.DescribeTransactionsResponse).TransactionStates; len(got) != 2 || got[0].TransactionalID != "x" || got[1].TransactionalID != "y" {
		t.Errorf("transactional ids: %+v", got)
	}
	producers := describeProducersOf("t", 0, 0, 1, 0)
	producers.Topics = append(producers.Topics, producers.Topics[0])
	got := c.ask(producers).(*kmsg.DescribeProducersResponse).Topics
	if len(got[0].Partitions) != 2 || len(got[0].Partitions[0].ActiveProducers) != 1 || len(got[1].Partitions) != 0 {
		t.Errorf("producers: %+v", got)
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{"g", "g", "h"}
	if got := c.ask(find).(*kmsg.FindCoordinatorResponse).Coordinators; len(got) != 2 || got[1].Key != "h" {
		t.Errorf("coordinators: %+v", got)
	}
	topics := kmsg.NewPtrMetadataRequest()
	topics.Version = 12
	topics.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}, {Topic: kmsg.StringPtr("t")}, {Topic: kmsg.StringPtr("u")}}
	if got := c.ask(topics).(*kmsg.MetadataResponse).Topics; len(got) != 2 || *got[0].Topic != "t" || *got[1].Topic != "u" {
		t.Errorf("topics: %+v", got)
	}
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Version = 4
	configs.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}, {ResourceType: 4, ResourceName: "t"}, {ResourceType: 2, ResourceName: "t"}}
	if got := c.ask(configs).(*kmsg.DescribeConfigsResponse).Resources; len(got) != 2 || got[1].ResourceType != 4 {
		t.Errorf("configs: %+v", got)
	}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Version, remove.Groups = 2, []string{"g", "g"}
	if got := c.ask(remove).(*kmsg.DeleteGroupsResponse).Groups; len(got) != 1 || got[0].ErrorCode != codeNone {
		t.Errorf("removed groups: %+v", got)
	}
}

func TestAnOffsetThatIsAskedForAgainIsAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	w.create("t", 2)
	w.coordinate()
	c := w.dial()
	c.ask(commitOf("g", 0, 5, strings.Repeat("m", 4096)))
	for v := offsetFetchAPI.min; v <= offsetFetchAPI.max; v++ {
		req := groupQuestion(9, v).(*kmsg.OffsetFetchRequest)
		req.Version, req.Group, req.Groups[0].Group = v, "g", "g"
		req.Topics[0].Partitions, req.Groups[0].Topics[0].Partitions = []int32{0, 0, 1, 0}, []int32{0, 0, 1, 0}
		req.Groups = []kmsg.OffsetFetchRequestGroup{req.Groups[0], req.Groups[0]}
		resp := c.ask(w.withIDs(req)).(*kmsg.OffsetFetchResponse)
		var asked []string
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				asked = append(asked, fmt.Sprint(p.Partition, " at ", p.Offset, " code ", p.ErrorCode))
			}
		}
		if v >= firstOffsetFetchGroups {
			for _, p := range resp.Groups[0].Topics[0].Partitions {
				asked = append(asked, fmt.Sprint(p.Partition, " at ", p.Offset, " code ", p.ErrorCode))
			}
			if again := resp.Groups[1]; again.Group != "g" || again.ErrorCode != codeInvalidRequest || len(again.Topics) != 0 {
				t.Errorf("version %d: a group that is named again: %+v", v, again)
			}
		}
		if want := []string{"0 at 5 code 0", "1 at -1 code 0"}; !slices.Equal(asked, want) {
			t.Errorf("version %d: %q, want %q", v, asked, want)
		}
	}
}

func TestAProducerIDWithoutAnEpochAndAnEpochWithoutAnIDAreRefused(t *testing.T) {
	w := newWorld(t)
	w.coordinateTxns()
	known := w.initTxn("x")
	id := "x"
	for _, transactional := range []*string{nil, &id} {
		for _, named := range []struct {
			id    int64
			epoch int16
		}{{known.ProducerID, -1}, {-1, known.Epoch}} {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, transactional, 1000
			req.ProducerID, req.ProducerEpoch = named.id, named.epoch
			if resp := w.dial().ask(req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != codeInvalidRequest {
				t.Errorf("%+v: %+v", named, resp)
			}
		}
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, &id, 1000, -7, 3
	if resp := w.dial().ask(req).(*kmsg.InitProducerIDResponse); resp.ErrorCode != codeProducerFenced {
		t.Errorf("a producer id that nobody can have: %+v", resp)
	}
}

func TestMarkersOfNobodyAreRefused(t *testing.T) {
	w := newWorld(t)
	w.create("t", 1)
	for _, m := range []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: -1}, {ProducerID: -9}, {ProducerID: 7, ProducerEpoch: -1}} {
		req := markersOf(1, "t", 0)
		req.Markers[0].ProducerID, req.Markers[0].ProducerEpoch = m.ProducerID, m.ProducerEpoch
		resp := w.dial().ask(req).(*kmsg.WriteTxnMarkersResponse)
		if code := resp.Markers[0].Topics[0].Partitions[0].ErrorCode; code != codeInvalidRequest || len(w.part("t", 0).markers) != 0 {
			t.Errorf("%+v: code %d", m, code)
		}
	}
}

func TestAMemberThatOffersVeryManyProtocolsIsRefused(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	req := joinOf(3, "g", "", nil)
	for i := range 100 {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = fmt.Sprint("p", i)
		req.Protocols = append(req.Protocols, p)
	}
	if resp := w.dial().ask(req).(*kmsg.JoinGroupResponse); resp.ErrorCode != codeInvalidRequest {
		t.Errorf("%+v", resp)
	}
}

func TestAPatternThatWouldKeepCoordinatorsBusyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.coordinateTxns()
	req := kmsg.NewPtrListTransactionsRequest()
	req.Version, req.TransactionalIDPattern = 2, kmsg.StringPtr(strings.Repeat("a?", maxPattern/2)+"b")
	if resp := w.dial().ask(req).(*kmsg.ListTransactionsResponse); resp.ErrorCode != codeInvalidRegularExpression {
		t.Errorf("%+v", resp)
	}
}
