package broker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/meta"
)

var describeConfigsAPI = api{
	key: 32, name: "DescribeConfigs", min: 0, max: 4,
	maxFrame: maxControlFrame,
	serve:    inOrder(describeConfigs),
	notes: []string{
		"Topics show every key that this broker honours, with its source; a broker shows its own settings, read-only, when it is asked itself.",
	},
}

// resource names what has configs.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

func describeConfigs(c *call, req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	req.Resources = onceBy(req.Resources, func(r *kmsg.DescribeConfigsRequestResource) resource { return resource{r.ResourceType, r.ResourceName} })
	for i := range req.Resources {
		in := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		var code int16
		var err error
		switch in.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			code, err = c.topicConfigs(in, req, &out)
		case kmsg.ConfigResourceTypeBroker:
			code, err = c.brokerConfigs(in, &out)
		default:
			code, err = codeInvalidRequest, fmt.Errorf("resource type %d has no configs here", in.ResourceType)
		}
		out.ErrorCode, out.ErrorMessage = c.refuse(code), sentence(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (c *call) topicConfigs(in *kmsg.DescribeConfigsRequestResource, req *kmsg.DescribeConfigsRequest, out *kmsg.DescribeConfigsResponseResource) (int16, error) {
	t := c.cfg.Meta.Image().Topic(in.ResourceName)
	if t == nil {
		if err := meta.CheckTopicName(in.ResourceName); err != nil {
			return codeInvalidTopic, err
		}
		return codeUnknownTopicOrPartition, fmt.Errorf("%w: %q", meta.ErrUnknownTopic, in.ResourceName)
	}
	for _, e := range meta.DescribeTopicConfig(t.Configs, c.cfg.TopicDefaults) {
		if in.ConfigNames != nil && !slices.Contains(in.ConfigNames, e.Key) {
			continue
		}
		out.Configs = append(out.Configs, topicConfig(&e, req))
	}
	return codeNone, nil
}

func topicConfig(e *meta.ConfigEntry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
	value := e.Value
	cfg.Name, cfg.Value = e.Key, &value
	cfg.Source, cfg.IsDefault = configSource(e.Source), e.Source != meta.SourceTopic
	cfg.ConfigType = kmsg.ConfigType(e.Kind)
	cfg.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if req.IncludeDocumentation {
		doc := e.Doc
		cfg.Documentation = &doc
	}
	if !req.IncludeSynonyms {
		return cfg
	}
	synonym := func(source meta.ConfigSource, value string) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = e.Key, &value, configSource(source)
		cfg.ConfigSynonyms = append(cfg.ConfigSynonyms, s)
	}
	if e.Source == meta.SourceTopic {
		synonym(meta.SourceTopic, e.Value)
	}
	if e.Default != e.BuiltIn {
		synonym(meta.SourceNode, e.Default)
	}
	synonym(meta.SourceBuiltIn, e.BuiltIn)
	return cfg
}

// configSource is Kafka's number for where a value comes from.
func configSource(s meta.ConfigSource) kmsg.ConfigSource {
	switch s {
	case meta.SourceTopic:
		return kmsg.ConfigSourceDynamicTopicConfig
	case meta.SourceNode:
		return kmsg.ConfigSourceStaticBrokerConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}

func (c *call) brokerConfigs(in *kmsg.DescribeConfigsRequestResource, out *kmsg.DescribeConfigsResponseResource) (int16, error) {
	if in.ResourceName == "" {
		return codeNone, nil // cluster-wide defaults: there are none
	}
	if id, err := strconv.ParseInt(in.ResourceName, 10, 32); err != nil || meta.NodeID(id) != c.cfg.NodeID {
		return codeInvalidRequest, fmt.Errorf("broker %q was asked of broker %d: a broker shows its own settings only", in.ResourceName, c.cfg.NodeID)
	}
	for _, key := range slices.Sorted(maps.Keys(c.cfg.Settings)) {
		if in.ConfigNames != nil && !slices.Contains(in.ConfigNames, key) {
			continue
		}
		value := c.cfg.Settings[key]
		cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
		cfg.Name, cfg.Value, cfg.ReadOnly = key, &value, true
		cfg.Source, cfg.ConfigType = kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeString
		cfg.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
		out.Configs = append(out.Configs, cfg)
	}
	return codeNone, nil
}
