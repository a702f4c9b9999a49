package broker

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
	"gopherlog/txn/twopc"
)

var writeTxnMarkersAPI = api{
	key: 27, name: "WriteTxnMarkers", min: 0, max: 2,
	maxFrame: maxControlFrame,
	serve:    whenReady(writeTxnMarkers),
	notes: []string{
		"For tools (`kafka-transactions abort`, `mqclient txn abort`): this cluster's coordinators send their markers another way. Answered when the marker is committed; a marker that is here already is success.",
		"An older coordinator epoch is TRANSACTION_COORDINATOR_FENCED, an older producer epoch INVALID_PRODUCER_EPOCH. The open transaction of a voted commit ends by its vote only: INVALID_TXN_STATE.",
		"The epochs that it names are believed, as in Kafka, where only brokers and administrators may send it (CLUSTER_ACTION): with a coordinator epoch or a producer epoch that nobody has reached it shuts a producer id out of the partition, and with the former its transactional id never ends a transaction there again. Clients that are not trusted have to be kept away from the broker's port.",
		"A marker with the tagged field 10002, the transactional id, is an operator's decision about what was promised: it is taken only when the one copy of that id's shard was on a disk that is gone (else NOT_COORDINATOR), and from ten seconds behind the promise on (else INVALID_TXN_STATE).",
	},
}

// markerTimeout is how long one marker may take; the request has no field for it.
const markerTimeout = 30 * time.Second

func writeTxnMarkers(c *call, req *kmsg.WriteTxnMarkersRequest, answer func(kmsg.Response)) {
	resp, outs := markersUnanswered(req)
	var left atomic.Int32
	left.Store(int32(len(outs)) + 1)
	finish := func() {
		if left.Add(-1) == 0 {
			answer(resp)
		}
	}
	image, deadline, n := c.cfg.Meta.Image(), c.cfg.Now().Add(markerTimeout), 0
	for i := range req.Markers {
		in := &req.Markers[i]
		for j := range in.Topics {
			for _, number := range in.Topics[j].Partitions {
				out := outs[n]
				n++
				end := func(code int16) {
					out.ErrorCode = c.refuse(code)
					finish()
				}
				p, _, code := c.find(image, in.Topics[j].Topic, number)
				if in.ProducerID < 0 || in.ProducerEpoch < 0 {
					code = codeInvalidRequest // nobody's
				}
				if code != codeNone {
					end(code)
					continue
				}
				c.writeMarker(p, in, deadline, end)
			}
		}
	}
	finish()
}

// markersUnanswered is the response without its error codes; outs are its partitions in the order of the request.
func markersUnanswered(req *kmsg.WriteTxnMarkersRequest) (resp *kmsg.WriteTxnMarkersResponse, outs []*kmsg.WriteTxnMarkersResponseMarkerTopicPartition) {
	resp = kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		in, out := &req.Markers[i], &resp.Markers[i]
		out.Default()
		out.ProducerID = in.ProducerID
		out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(in.Topics))
		for j := range in.Topics {
			t := &out.Topics[j]
			t.Default()
			t.Topic, t.Partitions = in.Topics[j].Topic, make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(in.Topics[j].Partitions))
			for k, number := range in.Topics[j].Partitions {
				t.Partitions[k].Default()
				t.Partitions[k].Partition = number
				outs = append(outs, &t.Partitions[k])
			}
		}
	}
	return resp, outs
}

// writeMarker lets the partition write the marker; end is called once, with the code that answers it.
func (c *call) writeMarker(p Partition, in *kmsg.WriteTxnMarkersRequestMarker, deadline time.Time, end func(code int16)) {
	done := func(err error) { end(markerCode(err)) }
	switch id := decreed(in); {
	case id == "":
		p.WriteMarker(producer.Marker{
			ProducerID: in.ProducerID, Epoch: in.ProducerEpoch, CoordinatorEpoch: in.CoordinatorEpoch,
			Version: producer.TransactionVersion(in.TransactionVersion), Commit: in.Committed,
		}, deadline, done)
	case !c.coordinatorLost(id):
		end(codeNotCoordinator)
	default:
		p.Decree(id, twopc.Identity{Producer: in.ProducerID, Epoch: in.ProducerEpoch}, in.Committed, done)
	}
}

// decreed is the transactional id about which the marker is an operator's decision; else empty.
func decreed(m *kmsg.WriteTxnMarkersRequestMarker) (id string) {
	m.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == twopc.TagTransactionalID {
			id = string(value)
		}
	})
	return id
}

// coordinatorLost says that the decisions about the transactional id, which is voted on, were on a disk that is gone. As long as that is not
// certain nobody but its coordinator may decide, be it down: it may have told COMMIT.
func (c *call) coordinatorLost(id string) bool {
	image := c.cfg.Meta.Image()
	t := image.Topic(coordinator.VotedTopic)
	return t != nil && image.Lost(&t.Partitions[coordinator.ShardOf(id, len(t.Partitions))])
}

// markerCode: who writes markers is told nothing about transactions that could be aborted.
func markerCode(err error) int16 {
	if code := codeOf(err); code != int16(kafkatx.TransactionAbortable) {
		return code
	}
	return codeInvalidTxnState
}
