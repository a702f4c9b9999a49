package meta

import (
	"fmt"

	"gopherlog/cluster/meta/metapb"

	"google.golang.org/protobuf/proto"
)

// answeredLimit is how many recent outcomes are remembered, so that a command whose answer was lost may be sent again.
const answeredLimit = 512

// machine is the replicated state machine. One goroutine drives it; what it publishes are immutable images.
type machine struct {
	img      *Image
	answered []*metapb.Answered // oldest first, at most answeredLimit
	byID     map[string]*metapb.Result
	publish  func(*Image) // must not block; nil in tests of the machine alone
}

func newMachine(publish func(*Image)) *machine {
	return &machine{img: emptyImage(), byID: map[string]*metapb.Result{}, publish: publish}
}

// Apply runs one command and returns its *metapb.Result. It reads nothing but the command and the state before it, so every node
// comes to the same result. A command that this program does not know was written by a newer one: going on would let this node's
// state drift away from the others', so that is a panic.
func (m *machine) Apply(index uint64, raw []byte) any {
	var cmd metapb.Command
	if err := proto.Unmarshal(raw, &cmd); err != nil {
		panic(fmt.Sprintf("control log entry %d is no command: %v", index, err))
	}
	if old := m.byID[string(cmd.RequestId)]; old != nil {
		m.adopt(m.img.at(index))
		return old
	}
	img, result := m.img.apply(index, &cmd)
	m.remember(cmd.RequestId, result)
	m.adopt(img)
	return result
}

func (m *machine) adopt(img *Image) {
	m.img = img
	if m.publish != nil {
		m.publish(img)
	}
}

func (m *machine) remember(id []byte, result *metapb.Result) {
	if len(id) == 0 {
		return
	}
	if len(m.answered) == answeredLimit {
		delete(m.byID, string(m.answered[0].RequestId))
		m.answered = m.answered[1:]
	}
	m.answered = append(m.answered, &metapb.Answered{RequestId: id, Result: result})
	m.byID[string(id)] = result
}

// apply returns the image after cmd and what the proposer is told.
func (m *Image) apply(index uint64, cmd *metapb.Command) (*Image, *metapb.Result) {
	d := m.edit(index)
	res := &metapb.Result{Index: index}
	switch op := cmd.Op.(type) {
	case *metapb.Command_InitCluster:
		res.Outcomes = one(d.initCluster(op.InitCluster))
	case *metapb.Command_RegisterBroker:
		res.Outcomes = one(d.registerBroker(op.RegisterBroker.GetBroker()))
	case *metapb.Command_MarkBroker:
		res.Outcomes = one(d.markBroker(op.MarkBroker))
	case *metapb.Command_CreateTopics:
		for _, spec := range op.CreateTopics.GetTopics() {
			res.Outcomes = append(res.Outcomes, d.createTopic(spec, cmd.Live))
		}
	case *metapb.Command_DeleteTopics:
		for _, ref := range op.DeleteTopics.GetTopics() {
			res.Outcomes = append(res.Outcomes, d.deleteTopic(ref))
		}
	case *metapb.Command_CreatePartitions:
		for _, spec := range op.CreatePartitions.GetTopics() {
			res.Outcomes = append(res.Outcomes, d.createPartitions(spec, cmd.Live))
		}
	case *metapb.Command_AlterConfigs:
		for _, change := range op.AlterConfigs.GetTopics() {
			res.Outcomes = append(res.Outcomes, d.alterConfigs(change))
		}
	case *metapb.Command_PublishLeaders:
		for _, u := range op.PublishLeaders.GetUpdates() {
			d.publishLeader(u)
		}
		res.Outcomes = one(&metapb.Outcome{})
	case *metapb.Command_AllocateProducerIds:
		var o *metapb.Outcome
		res.FirstProducerId, o = d.allocateProducerIDs(op.AllocateProducerIds.GetCount())
		res.Outcomes = one(o)
	default:
		panic(fmt.Sprintf("control log entry %d holds a command (%T) that this version does not know: run the newer version that wrote it", index, op))
	}
	return &d.Image, res
}

func one(o *metapb.Outcome) []*metapb.Outcome { return []*metapb.Outcome{o} }

func refuse(code metapb.Code, format string, args ...any) *metapb.Outcome {
	return &metapb.Outcome{Code: code, Message: fmt.Sprintf(format, args...)}
}

// at is the same state under a newer index.
func (m *Image) at(index uint64) *Image {
	c := *m
	c.Epoch = index
	return &c
}
