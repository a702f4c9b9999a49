package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/engine/wire"
)

var apiVersionsAPI = api{
	key: 18, name: "ApiVersions", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    serveApiVersions,
	notes: []string{
		"A newer version is answered with a version 0 body, UNSUPPORTED_VERSION and the whole list; the client asks again.",
		"The response header has no tag section in any version.",
		"From version 5 a client may say which cluster and node it means to speak to: REBOOTSTRAP_REQUIRED if it reached another one (KIP-1242).",
		"Version 3 shows transaction.version finalised at 2 (KIP-890): clients that know it leave it to Produce 12 and TxnOffsetCommit 5 to join a transaction, and EndTxn 5 raises the producer's epoch. Older clients go on as before.",
	},
}

func serveApiVersions(b *Broker, a *api, r *wire.Request) {
	start := b.cfg.Now()
	resp := b.apiVersions(r.Version)
	var req kmsg.ApiVersionsRequest
	if r.Version > a.max || r.Version < a.min {
		// The client cannot know our versions yet: what every client can read is version 0.
		resp.ErrorCode = b.count(a, codeUnsupportedVersion)
		r.Version = 0
	} else if err := decode(&req, r); err != nil {
		b.drop(a, r, err)
		return
	} else {
		resp.ErrorCode = b.count(a, b.misrouted(&req))
	}
	r.ReplyMessageWait(resp)
	b.observe(a, start)
}

// misrouted compares whom a client means to speak to with who this is. A node that was not told its cluster yet contradicts
// nobody.
func (b *Broker) misrouted(req *kmsg.ApiVersionsRequest) int16 {
	cluster := b.cfg.Meta.Image().ClusterID
	switch {
	case (req.ClusterID == nil) != (req.NodeID == -1):
		return codeInvalidRequest
	case req.ClusterID != nil && (*req.ClusterID != cluster && cluster != "" || meta.NodeID(req.NodeID) != b.cfg.NodeID):
		return codeRebootstrapRequired
	}
	return codeNone
}

func (b *Broker) apiVersions(version int16) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	for _, a := range b.apis {
		if a == nil {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	b.features(resp, version)
	return resp
}

// transactionFeature is Kafka's name of how clients end transactions. At version 2 (KIP-890) they leave it to the partitions to join a
// transaction, and each end raises the producer's epoch, so that nothing of one transaction fits the next.
const transactionFeature = "transaction.version"

// firstZeroFeature is the version from which on clients take 0 for the least version of a feature; Java's refuse the whole answer before it.
const firstZeroFeature = 4

// features adds what is finalised in the cluster. Clients speak version 2 of transactions only where it is, and the requests that belong to
// it are served.
func (b *Broker) features(resp *kmsg.ApiVersionsResponse, version int16) {
	if produceAPI.max < firstAddingProduce || endTxnAPI.max < firstRaisingEnd || txnOffsetCommitAPI.max < firstAddingOffsets {
		return
	}
	supported, finalized := kmsg.NewApiVersionsResponseSupportedFeature(), kmsg.NewApiVersionsResponseFinalizedFeature()
	supported.Name, supported.MinVersion, supported.MaxVersion = transactionFeature, 0, 2
	if version < firstZeroFeature {
		supported.MinVersion = 1
	}
	finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = transactionFeature, 2, 2
	resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch = append(resp.FinalizedFeatures, finalized), 0
}
