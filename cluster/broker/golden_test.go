package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
	"gopherlog/engine/record"
	"gopherlog/txn/producer"
)

// golden compares text with a file below testdata, or writes it with -update.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; go test ./cluster/broker -run %s -update writes it anew, then read the diff\n%s", path, t.Name(), firstDifference(text, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "", ""
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d:\n  got  %.400s\n  want %.400s", i+1, a, b)
		}
	}
	return ""
}

// TestEveryVersionOfEveryApiOnTheWire asks one question of every API in every version. kmsg, which knows the protocol
// independently, must read the answer without a byte left over and write the very same bytes; what it read is compared
// with a golden file.
func TestEveryVersionOfEveryApiOnTheWire(t *testing.T) {
	for _, a := range registry() {
		t.Run(a.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Settings = map[string]string{"node.id": "1"} })
			w.create("t", 2, "retention.ms", "1000")
			w.fill("t", 0, 2)
			if isGroupAPI(a.key) || isTxnAPI(a.key) {
				w.coordinate()
			}
			if isTxnAPI(a.key) {
				w.coordinateTxns()
			}
			var out strings.Builder
			for v := a.min; v <= a.max; v++ {
				req := question(w, a.key, v)
				req.SetVersion(v)
				c := w.dial()
				c.send(req)
				resp, raw := c.receiveRaw(req)
				if again := resp.AppendTo(nil); !bytes.Equal(again, raw) {
					t.Errorf("version %d: kmsg writes other bytes\ngot  %x\nkmsg %x", v, raw, again)
				}
				fmt.Fprintf(&out, "# %s %d, %d bytes\n%s\n", a.name, v, len(raw), w.masked(t, resp))
			}
			golden(t, filepath.Join("testdata", "wire", fmt.Sprintf("%02d_%s.txt", a.key, a.name)), out.String())
		})
	}
}

// masked is the response as JSON, with what differs from run to run replaced.
func (w *world) masked(t *testing.T, resp kmsg.Response) string {
	b, err := json.MarshalIndent(resp, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	image := w.ctl.Image()
	text = strings.ReplaceAll(text, image.ClusterID, "CLUSTER")
	for _, name := range image.TopicNames() {
		id, _ := json.MarshalIndent(image.Topic(name).ID, "", "")
		text = strings.ReplaceAll(squeeze(text), squeeze(string(id)), `"ID OF `+name+`"`)
	}
	_, port, _ := net.SplitHostPort(w.addr)
	return strings.ReplaceAll(squeeze(text), `"Port": `+port, `"Port": PORT`)
}

// squeeze puts arrays of numbers on one line.
func squeeze(s string) string {
	fields := strings.Split(s, "\n")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	s = strings.Join(fields, " ")
	return strings.ReplaceAll(s, `, "UnknownTags": {}`, "")
}

// question is one request to an API that the world's topic t can answer.
func question(w *world, key, version int16) kmsg.Request {
	if isGroupAPI(key) {
		return w.withIDs(groupQuestion(key, version))
	}
	if isTxnAPI(key) {
		return w.withIDs(w.txnQuestion(key, version))
	}
	t := "t"
	switch key {
	case 0:
		return produce(version, 1, t, 1, batchOf(record.Builder{BaseTimestamp: 5}, "a"))
	case 1:
		return fetch(version, t, 0, 0)
	case 2:
		req := listOffsetsOf(version, t, timestampLatest, -1)
		earliest := kmsg.NewListOffsetsRequestTopicPartition()
		earliest.Partition, earliest.Timestamp, earliest.CurrentLeaderEpoch = 1, timestampEarliest, -1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, earliest)
		return req
	case 3:
		return metadataOf(version, false, t, "nope")
	case 19:
		return createOf(version, fmt.Sprint("new", version), "t")
	case 20:
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.TopicNames = 1000, []string{"nope"}
		d := kmsg.NewDeleteTopicsRequestTopic()
		d.TopicID = meta.TopicID{1}
		req.Topics = append(req.Topics, d)
		return req
	case 21:
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 1000
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Offset = 1
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic, topic.Partitions = t, append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return req
	case 23:
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.LeaderEpoch = 1
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic, topic.Partitions = t, append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return req
	case 27:
		return markersOf(version, t, 0, 5)
	case 61:
		w.part(t, 0).producers = []producer.Producer{{ID: 7, Epoch: 1, LastSequence: 4, LastTimestamp: 9, CoordinatorEpoch: 2, Transaction: 1}}
		return describeProducersOf(t, 0, 5)
	case 32:
		req := describeOf(t, "retention.ms", "segment.bytes")
		own := kmsg.NewDescribeConfigsRequestResource()
		own.ResourceType, own.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
		req.Resources = append(req.Resources, own)
		return req
	case 37:
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 1000
		p := kmsg.NewCreatePartitionsRequestTopic()
		p.Topic, p.Count = t, int32(3+version)
		req.Topics = append(req.Topics, p)
		return req
	case 44:
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		value := "nonsense"
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "retention.ms", &value
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeTopic, t, append(r.Configs, c)
		req.Resources = append(req.Resources, r)
		return req
	case 10:
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g"}
		return req
	}
	return kmsg.RequestForKey(key)
}

// TestProtocolDocument keeps docs/PROTOCOL.md what the registry says. The section on foreign clients at its end is written by
// scripts/compat and left as it is.
func TestProtocolDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "PROTOCOL.md")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const clients = "\n## Clients\n"
	_, kept, found := strings.Cut(string(old), clients)
	if found {
		kept = clients + kept
	}
	golden(t, path, protocolDocument()+kept)
}
