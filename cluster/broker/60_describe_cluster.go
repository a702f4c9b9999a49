package broker

import "github.com/twmb/franz-go/pkg/kmsg"

var describeClusterAPI = api{
	key: 60, name: "DescribeCluster", min: 0, max: 2,
	maxFrame: maxControlFrame,
	serve:    inOrder(describeCluster),
	notes: []string{
		"Lists the brokers that are up; the controller is the control group's leader. From version 2 those that are down are listed too when the client asks for them, as fenced.",
		"Controllers are not asked by themselves (version 1): MISMATCHED_ENDPOINT_TYPE.",
	},
}

// Kinds of nodes that DescribeCluster can be asked for (KIP-919).
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func describeCluster(c *call, req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType = req.EndpointType
	switch req.EndpointType {
	case endpointBrokers:
	case endpointControllers:
		return refuseEndpoints(resp, c.refuse(codeMismatchedEndpointType), "this is a broker; nodes have no endpoint of their controllers")
	default:
		return refuseEndpoints(resp, c.refuse(codeUnsupportedEndpointType), "endpoints are those of brokers (1) or controllers (2)")
	}
	image := c.cfg.Meta.Image()
	resp.ClusterID, resp.ControllerID = image.ClusterID, c.controller()
	listed := c.liveBrokers(image)
	if req.IncludeFencedBrokers {
		listed = allBrokers(image)
	}
	for _, br := range listed {
		out := kmsg.NewDescribeClusterResponseBroker()
		out.NodeID, out.Rack, out.IsFenced = int32(br.ID), rack(br), req.IncludeFencedBrokers && !c.alive(br.ID)
		out.Host, out.Port = c.endpoint(c.req.Conn, br)
		resp.Brokers = append(resp.Brokers, out)
	}
	return resp
}

func refuseEndpoints(resp *kmsg.DescribeClusterResponse, code int16, why string) kmsg.Response {
	resp.ErrorCode, resp.ErrorMessage = code, &why
	return resp
}
