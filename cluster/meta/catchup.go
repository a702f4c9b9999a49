package meta

import (
	"context"

	"gopherlog/cluster/meta/metapb"
)

// CatchUp returns nil when this node's image shows everything that was agreed on before the call: whoever then finds something missing
// knows that it is gone, and not merely unknown here yet. It takes a command that changes nothing through the control group.
func (c *Controller) CatchUp(ctx context.Context) error {
	if err := c.submitOne(ctx, &metapb.Command{Op: &metapb.Command_PublishLeaders{PublishLeaders: &metapb.PublishLeaders{}}}); err != nil {
		return err
	}
	return ctx.Err()
}
