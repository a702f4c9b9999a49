package broker

import (
	"context"
	"iter"
	"sync"
	"time"

	"gopherlog/cluster/meta"
)

const (
	// hearLimit is for how long a request waits for a topic that this node has not heard of: without one it is told that the topic does not
	// exist, and clients rest for a second or more (franz-go) before they believe otherwise.
	hearLimit = 500 * time.Millisecond
	// hearPause keeps requests that name what is nowhere from filling the control group's log.
	hearPause = 20 * time.Millisecond
)

// named is a partition as a request names it: by its topic's id, or by its name.
type named struct {
	topic  string
	id     meta.TopicID
	byID   bool
	number int32
}

func (n *named) shown(image *meta.Image) bool {
	t, _ := topicOf(image, n.topic, n.id, n.byID)
	return t != nil && int(n.number) < len(t.Partitions)
}

// heard returns an image that shows all of these partitions, if they were made before the request came: another node may have told the client
// of a topic that this one learns of in a moment. It blocks the connection's reader, or a later commit could overtake this one.
func (c *call) heard(all iter.Seq[named]) *meta.Image {
	image := c.cfg.Meta.Image()
	for n := range all {
		if !n.shown(image) {
			c.hearing.catchUp(c.req.Conn.Context(), c.cfg.Meta.CatchUp)
			return c.cfg.Meta.Image()
		}
	}
	return image
}

// hearing makes the image current for all who wait for that at once: in rounds, each of which begins after all who wait for it came.
type hearing struct {
	mu   sync.Mutex
	last *round // that began
	next *round // that who comes now waits for; nil: nobody waits
}

type round struct {
	began time.Time
	over  chan struct{}
}

// catchUp returns when a round that began after the call is over, or at the limit. Who comes first for a round runs it.
func (h *hearing) catchUp(conn context.Context, current func(context.Context) error) {
	h.mu.Lock()
	r := h.next
	mine := r == nil
	if mine {
		r = &round{over: make(chan struct{})}
		h.next = r
	}
	before := h.last
	h.mu.Unlock()
	if mine {
		h.run(context.WithoutCancel(conn), r, before, current) // others wait for it too
		return
	}
	limit := time.NewTimer(hearLimit)
	defer limit.Stop()
	select {
	case <-r.over:
	case <-limit.C:
	case <-conn.Done():
	}
}

func (h *hearing) run(ctx context.Context, r, before *round, current func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, hearLimit)
	defer cancel()
	defer close(r.over)
	if before != nil {
		select {
		case <-before.over:
		case <-ctx.Done():
		}
		rest(ctx, hearPause-time.Since(before.began))
	}
	h.mu.Lock()
	r.began, h.last, h.next = time.Now(), r, nil
	h.mu.Unlock()
	_ = current(ctx) // without it the image stays what it is
}

func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}
