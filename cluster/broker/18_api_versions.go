package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/engine/wire"
)

var apiVersionsAPI = api{
	key: 18, name: "ApiVersions", min: 0, max: 3,
	maxFrame: maxControlFrame,
	serve:    serveApiVersions,
	notes: []string{
		"A newer version is answered with a version 0 body, UNSUPPORTED_VERSION and the whole list; the client asks again.",
		"The response header has no tag section in any version.",
	},
}

func serveApiVersions(b *Broker, a *api, r *wire.Request) {
	start := b.cfg.Now()
	resp := b.apiVersions()
	if r.Version > a.max || r.Version < a.min {
		// The client cannot know our versions yet: what every client can read is version 0.
		resp.ErrorCode = b.count(a, codeUnsupportedVersion)
		r.Version = 0
	} else if err := decode(new(kmsg.ApiVersionsRequest), r); err != nil {
		b.drop(a, r, err)
		return
	}
	r.ReplyMessageWait(resp)
	b.observe(a, start)
}

func (b *Broker) apiVersions() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	for _, a := range b.apis {
		if a == nil {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}
