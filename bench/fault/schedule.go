package fault

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Plan is one fault of a scenario with its place on the trial's clock.
type Plan struct {
	Kind, Shape, Target string
	At                  time.Duration // after the start of the trial's clock
	For                 time.Duration // 0: until the end
	Failpoint           string        // not empty: the fault happens when the target passes this point for the Hit-th time after At
	Hit                 int64
}

// Run injects and heals every planned fault at its time after start, each in
// its own goroutine since they may overlap, and returns when all are over. When
// ctx ends, faults that are in effect are healed before Run returns. observe,
// if not nil, is called at each change from those goroutines.
func Run(ctx context.Context, env *Env, start time.Time, plans []Plan, observe func(Event)) []Event {
	events := make([]Event, len(plans))
	var wg sync.WaitGroup
	for i, p := range plans {
		wg.Go(func() {
			events[i] = one(ctx, env, start, p, observe)
		})
	}
	wg.Wait()
	return events
}

func one(ctx context.Context, env *Env, start time.Time, p Plan, observe func(Event)) Event {
	e := Event{Kind: p.Kind, Shape: p.Shape, Target: p.Target, Failpoint: p.Failpoint, Planned: start.Add(p.At)}
	tell := func() {
		if observe != nil {
			observe(e)
		}
	}
	f, err := New(p.Kind, p.Shape)
	if sel, wrong := ParseSelector(p.Target); wrong == nil && sel.Role == "worker" {
		f = &strike{kind: p.Kind, worker: sel.Worker, length: p.For}
	}
	if err == nil && sleepUntil(ctx, e.Planned) {
		err = inject(ctx, env, f, p, &e)
	} else if err == nil {
		err = errors.New("the trial ended before the fault was due")
	}
	if err != nil {
		e.Error, e.Skipped = err.Error(), errors.Is(err, ErrSkipped)
		if !e.Injected.IsZero() && !e.Skipped {
			// half a fault must not outlive its event: rules would stay for the trials that follow
			_, _ = f.Heal(context.WithoutCancel(ctx), env, e.Nodes)
		}
		tell()
		return e
	}
	tell()
	if p.For > 0 {
		sleepUntil(ctx, e.Injected.Add(p.For))
	} else {
		<-ctx.Done()
	}
	e.HealAsked = time.Now()
	// healing must also work after the trial was interrupted
	if e.HealProof, err = f.Heal(context.WithoutCancel(ctx), env, e.Nodes); err != nil {
		e.Error = "heal: " + err.Error()
	}
	e.Healed = time.Now()
	tell()
	return e
}

func inject(ctx context.Context, env *Env, f Fault, p Plan, e *Event) error {
	sel, err := ParseSelector(p.Target)
	if err != nil {
		return err
	}
	if sel.Role != "worker" {
		if e.Nodes, err = sel.Resolve(ctx, env); err != nil {
			return err
		}
	}
	if p.Failpoint != "" {
		passed, err := awaitPoint(ctx, env, e.Nodes, p)
		if err != nil {
			return err
		}
		defer func() {
			if e.Proof != "" {
				e.Proof = passed + "; " + e.Proof
			}
		}()
	}
	e.Injected = time.Now()
	if e.Proof, err = f.Inject(ctx, env, e.Nodes); err != nil {
		return err
	}
	e.Effective = time.Now()
	return nil
}

// sleepUntil returns false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.NewTimer(time.Until(t))
	defer d.Stop()
	select {
	case <-d.C:
		return true
	case <-ctx.Done():
		return false
	}
}
