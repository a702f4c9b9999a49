package broker

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/txn/kafkatx"
	"gopherlog/txn/producer"
)

var writeTxnMarkersAPI = api{
	key: 27, name: "WriteTxnMarkers", min: 0, max: 2,
	maxFrame: maxControlFrame,
	serve:    whenReady(writeTxnMarkers),
	notes: []string{
		"For tools (`kafka-transactions abort`, `mqclient txn abort`): this cluster's coordinators send their markers another way. Answered when the marker is committed; a marker that is here already is success.",
		"An older coordinator epoch is TRANSACTION_COORDINATOR_FENCED, an older producer epoch INVALID_PRODUCER_EPOCH. The open transaction of a voted commit ends by its vote only: INVALID_TXN_STATE.",
	},
}

// markerTimeout is how long one marker may take; the request has no field for it.
const markerTimeout = 30 * time.Second

func writeTxnMarkers(c *call, req *kmsg.WriteTxnMarkersRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	var outs []*kmsg.WriteTxnMarkersResponseMarkerTopicPartition
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
		m := producer.Marker{
			ProducerID: in.ProducerID, Epoch: in.ProducerEpoch, CoordinatorEpoch: in.CoordinatorEpoch,
			Version: producer.TransactionVersion(in.TransactionVersion), Commit: in.Committed,
		}
		for j := range in.Topics {
			for _, number := range in.Topics[j].Partitions {
				out := outs[n]
				n++
				p, _, code := c.find(image, in.Topics[j].Topic, number)
				if m.ProducerID < 0 || m.Epoch < 0 {
					code = codeInvalidRequest // nobody's
				}
				if code != codeNone {
					out.ErrorCode = c.refuse(code)
					finish()
					continue
				}
				p.WriteMarker(m, deadline, func(err error) {
					out.ErrorCode = c.refuse(markerCode(err))
					finish()
				})
			}
		}
	}
	finish()
}

// markerCode: who writes markers is told nothing about transactions that could be aborted.
func markerCode(err error) int16 {
	if code := codeOf(err); code != int16(kafkatx.TransactionAbortable) {
		return code
	}
	return codeInvalidTxnState
}
