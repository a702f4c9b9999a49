package broker

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var describeLogDirsAPI = api{
	key: 35, name: "DescribeLogDirs", min: 0, max: 5,
	maxFrame: maxControlFrame,
	serve:    inOrder(describeLogDirs),
	notes: []string{
		"One directory with the replicas on this node; a null list of topics means all. Sizes of the disk are not reported (−1).",
	},
}

func describeLogDirs(c *call, req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = c.cfg.DataDir, -1, -1
	dir.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
	image := c.cfg.Meta.Image()
	if req.Topics == nil {
		for _, name := range image.TopicNames() {
			c.addLogDir(&dir, image.Topic(name), nil)
		}
	}
	req.Topics = onceBy(req.Topics, func(t *kmsg.DescribeLogDirsRequestTopic) string { return t.Topic })
	for i := range req.Topics {
		if t := image.Topic(req.Topics[i].Topic); t != nil {
			c.addLogDir(&dir, t, req.Topics[i].Partitions)
		}
	}
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{dir}
	return resp
}

// addLogDir adds the replicas of a topic that are on this node; numbers nil means all.
func (c *call) addLogDir(dir *kmsg.DescribeLogDirsResponseDir, t *meta.Topic, numbers []int32) {
	out := kmsg.NewDescribeLogDirsResponseDirTopic()
	out.Topic = t.Name
	for i := range t.Partitions {
		number := int32(i)
		if numbers != nil && !slices.Contains(numbers, number) {
			continue
		}
		if p := c.local(t, number); p != nil {
			part := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			part.Partition, part.Size, part.OffsetLag = number, p.Size(), max(p.HighWatermark()-p.EndOffset(), 0)
			out.Partitions = append(out.Partitions, part)
		}
	}
	if len(out.Partitions) > 0 {
		dir.Topics = append(dir.Topics, out)
	}
}
