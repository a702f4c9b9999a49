package broker

import "github.com/twmb/franz-go/pkg/kmsg"

var initProducerIDAPI = api{
	key: 22, name: "InitProducerId", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    inOrder(initProducerID),
	notes: []string{
		"Without a transactional id: an id that no node ever hands out again, epoch 0, also to a producer that names an id it had before.",
		"With one: COORDINATOR_NOT_AVAILABLE, as this version has no transactions.",
	},
}

func initProducerID(c *call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = c.refuse(codeCoordinatorNotAvailable)
		return resp
	}
	ctx, cancel := c.timeout(int32(c.cfg.AdminTimeout.Milliseconds()))
	defer cancel()
	id, err := c.cfg.Meta.NextProducerID(ctx)
	if code := c.code(err); code != codeNone {
		// What a client retries: the control group has no leader for the moment.
		resp.ErrorCode = codeCoordinatorNotAvailable
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}
