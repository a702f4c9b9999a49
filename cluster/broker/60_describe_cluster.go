package broker

import "github.com/twmb/franz-go/pkg/kmsg"

var describeClusterAPI = api{
	key: 60, name: "DescribeCluster", min: 0, max: 0,
	maxFrame: maxControlFrame,
	serve:    inOrder(describeCluster),
	notes:    []string{"Lists the brokers that are up; the controller is the control group's leader."},
}

func describeCluster(c *call, _ *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	image := c.cfg.Meta.Image()
	resp.ClusterID, resp.ControllerID = image.ClusterID, c.controller()
	for _, br := range c.liveBrokers(image) {
		out := kmsg.NewDescribeClusterResponseBroker()
		out.NodeID, out.Rack = int32(br.ID), rack(br)
		out.Host, out.Port = c.endpoint(c.req.Conn, br)
		resp.Brokers = append(resp.Brokers, out)
	}
	return resp
}
