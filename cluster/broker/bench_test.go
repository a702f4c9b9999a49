package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/partition"
	"gopherlog/engine/wire"
)

// instant is a partition that acknowledges at once: what is left is the broker's own cost.
type instant struct{ *fakePartition }

func (i instant) Append(r *partition.AppendRequest) { r.Done(partition.AppendResult{}) }

type instants struct{ w *world }

func (i instants) Get(topic string, number int32) (Partition, error) {
	p, err := i.w.get(topic, number)
	return instant{p}, err
}

// BenchmarkProduceRequest is a produce request of one batch from the socket to the answer, with everything but the log.
func BenchmarkProduceRequest(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newWorld(b, func(c *Config) { c.Pool = wire.NewPool() })
			w.broker.cfg.Partitions = instants{w}
			w.create("t", 1, "max.message.bytes", "4000000")
			c := w.dial()
			ask := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, produce(9, -1, "t", 0, batch(string(make([]byte, size)))), 1)
			answer := make([]byte, 1000)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.conn.Write(ask); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, answer[:4]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, answer[:binary.BigEndian.Uint32(answer)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
