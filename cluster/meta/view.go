package meta

import (
	"context"
	"sync"
	"sync/atomic"
)

// views holds the newest image and wakes whoever waits for a newer one. show is called by one goroutine, everything else by any.
type views struct{ cur atomic.Pointer[view] }

type view struct {
	img   *Image
	newer chan struct{} // closed when another view takes this one's place
}

func newViews() *views {
	v := &views{}
	v.cur.Store(&view{img: emptyImage(), newer: make(chan struct{})})
	return v
}

// show never blocks: waiting readers look for themselves.
func (v *views) show(img *Image) {
	close(v.cur.Swap(&view{img: img, newer: make(chan struct{})}).newer)
}

func (v *views) image() *Image { return v.cur.Load().img }

// wait returns when ok says yes to the newest image.
func (v *views) wait(ctx context.Context, ok func(*Image) bool) error {
	for {
		cur := v.cur.Load()
		if ok(cur.img) {
			return nil
		}
		select {
		case <-cur.newer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow calls fn with the newest image, again and again as it changes, until stop is closed or ctx ends.
func (v *views) follow(ctx context.Context, stop <-chan struct{}, fn func(*Image)) {
	for {
		cur := v.cur.Load()
		fn(cur.img)
		select {
		case <-cur.newer:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// Image returns the newest image of this node; never nil. Before the node is ready it may be old or empty.
func (c *Controller) Image() *Image { return c.views.image() }

// Subscribe calls fn with the current image and then with newer ones, from a goroutine of its own; images that appear while fn runs
// are skipped for the newest. The returned function ends it and does not wait for a call that is under way; Close does, so fn must
// not call Close.
func (c *Controller) Subscribe(fn func(*Image)) (unsubscribe func()) {
	stop := make(chan struct{})
	c.spawn(func() { c.views.follow(c.ctx, stop, fn) })
	return sync.OnceFunc(func() { close(stop) })
}

// WaitFor waits until this node's image is at least as new as epoch.
func (c *Controller) WaitFor(ctx context.Context, epoch uint64) error {
	ctx, cancel := c.join(ctx)
	defer cancel()
	return c.views.wait(ctx, func(img *Image) bool { return img.Epoch >= epoch })
}
