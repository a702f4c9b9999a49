package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/wire"
)

// api is one Kafka API as this broker serves it. What is advertised, accepted, documented and implemented is this one value.
type api struct {
	key      int16
	name     string
	min, max int16 // versions advertised
	maxFrame int   // largest request in bytes; 0: the connection's own limit
	// serve answers the request, now or later. It runs on the connection's reader.
	serve func(b *Broker, a *api, r *wire.Request)
	// notes are the rules of this API that its versions do not tell, for docs/PROTOCOL.md.
	notes []string
}

const (
	maxKey = 127 // of an api key that the table has room for
	// maxControlFrame bounds every request that carries no records: decoding makes about ten bytes of structs of each byte
	// of an array.
	maxControlFrame = 1 << 20
)

// registry lists all APIs in order of their files.
func registry() []*api {
	return []*api{
		&produceAPI, &fetchAPI, &listOffsetsAPI, &metadataAPI, &offsetCommitAPI, &offsetFetchAPI, &findCoordinatorAPI,
		&joinGroupAPI, &heartbeatAPI, &leaveGroupAPI, &syncGroupAPI, &describeGroupsAPI, &listGroupsAPI, &apiVersionsAPI,
		&createTopicsAPI, &deleteTopicsAPI, &deleteRecordsAPI, &initProducerIDAPI, &offsetForLeaderEpochAPI,
		&addPartitionsToTxnAPI, &addOffsetsToTxnAPI, &endTxnAPI, &writeTxnMarkersAPI, &txnOffsetCommitAPI, &describeConfigsAPI,
		&describeLogDirsAPI, &createPartitionsAPI, &deleteGroupsAPI, &incrementalAlterConfigsAPI, &offsetDeleteAPI,
		&describeClusterAPI, &describeProducersAPI, &describeTransactionsAPI, &listTransactionsAPI,
	}
}

// frameLimit is asked before a frame is read: unknown APIs and versions get no byte of memory. ApiVersions is
// answered in every version, that is how a newer client finds out.
func (b *Broker) frameLimit(key, version int16) int {
	if key < 0 || key > maxKey || b.apis[key] == nil {
		return 0
	}
	a := b.apis[key]
	if (version < a.min || version > a.max) && key != apiVersionsAPI.key {
		return 0
	}
	if a.maxFrame == 0 {
		return b.cfg.Limits.MaxFrame
	}
	return min(a.maxFrame, b.cfg.Limits.MaxFrame)
}

func (b *Broker) handle(r *wire.Request) {
	a := b.apis[r.Key]
	a.serve(b, a, r)
}

// call is one request of an API that is answered before the next request of its connection is read.
type call struct {
	*Broker
	api     *api
	req     *wire.Request
	version int16
}

// code maps an error to Kafka's code and counts it.
func (c *call) code(err error) int16 { return c.count(c.api, codeOf(err)) }

// refuse counts a code that the handler chose itself.
func (c *call) refuse(code int16) int16 { return c.count(c.api, code) }

// timeout is the context of an admin request: as long as the client waits, and no longer than its connection lives.
func (c *call) timeout(millis int32) (context.Context, context.CancelFunc) {
	d := min(max(time.Duration(millis)*time.Millisecond, 0), c.cfg.AdminTimeout)
	return context.WithTimeout(c.req.Conn.Context(), d)
}

// inOrder makes a serve function of a handler that takes and returns whole messages.
func inOrder[Q any, P interface {
	*Q
	kmsg.Request
}](handle func(c *call, req P) kmsg.Response) func(*Broker, *api, *wire.Request) {
	return func(b *Broker, a *api, r *wire.Request) {
		start := b.cfg.Now()
		req := P(new(Q))
		if err := decode(req, r); err != nil {
			b.drop(a, r, err)
			return
		}
		resp := handle(&call{Broker: b, api: a, req: r, version: r.Version}, req)
		r.ReplyMessageWait(resp)
		b.observe(a, start)
	}
}

// whenReady makes a serve function of a handler that calls answer once, now or later, from any goroutine, and does not block. Meanwhile the
// connection's next requests are read; their answers wait for this one. Byte strings of the request are valid until it is answered.
func whenReady[Q any, P interface {
	*Q
	kmsg.Request
}](handle func(c *call, req P, answer func(kmsg.Response))) func(*Broker, *api, *wire.Request) {
	return func(b *Broker, a *api, r *wire.Request) {
		start := b.cfg.Now()
		req := P(new(Q))
		if err := decode(req, r); err != nil {
			b.drop(a, r, err)
			return
		}
		handle(&call{Broker: b, api: a, req: r, version: r.Version}, req, func(resp kmsg.Response) {
			r.ReplyMessage(resp)
			b.observe(a, start)
		})
	}
}

// decode reads the body of r into req. Strings are copied: they may outlive the request's buffer.
func decode(req kmsg.Request, r *wire.Request) error {
	req.SetVersion(r.Version)
	if err := req.ReadFrom(r.Body); err != nil {
		return fmt.Errorf("%w: body: %w", wire.ErrFrame, err)
	}
	return nil
}

// drop closes the connection of a request that cannot be answered.
func (b *Broker) drop(a *api, r *wire.Request, err error) {
	r.ReplyNone()
	r.Conn.Close(fmt.Errorf("%s version %d: %w", a.name, r.Version, err))
}
