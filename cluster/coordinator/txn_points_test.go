package coordinator

import (
	"testing"
	"testing/synctest"

	"gopherlog/engine/failpoint"
	"gopherlog/txn/kafkatx"
)

// A client that was not answered asks again: the next coordinator gives it an epoch that nobody else has, whether or not the first was written.
func TestAProducerWhoseCoordinatorDiedBeforeItsAnswerGetsAnEpochOfItsOwn(t *testing.T) {
	for point, known := range map[failpoint.Name]bool{beforeEmpty: false, afterEmpty: true} {
		t.Run(string(point), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTxnRig(t)
				if err := r.points.Arm(point, failpoint.Action{Kind: failpoint.Block}); err != nil {
					t.Fatal(err)
				}
				first := r.init("x")
				synctest.Wait()
				if r.points.Blocked(point) == 0 || len(first) > 0 {
					t.Errorf("%d stand at the point, %d answers", r.points.Blocked(point), len(first))
				}
				// The node stops where it stands, and another one leads from what is in the log.
				log := r.part.kept.Snapshot(nil)
				r.part.change(func(p *fakeShard) { p.ready = false })
				r.x.Led(r.part)
				r.points.DisarmAll()
				synctest.Wait()
				s := newTxnRig(t)
				s.lose()
				if err := s.part.kept.Restore(log); err != nil {
					t.Fatal(err)
				}
				s.lead(2)
				m := s.part.kept.(*late).kept.(*txnTable).meta("x")
				if (m != nil) != known {
					t.Fatalf("the next coordinator knows %v", m)
				}
				next := s.took(s.init("x"))
				if known && (next.ProducerID != m.ProducerID || next.Epoch != m.Epoch+1) || !known && next.Epoch != 0 {
					t.Errorf("%+v after %v", next, m)
				}
				if d := s.described("x"); d.Status != kafkatx.Empty {
					t.Errorf("%+v", d)
				}
				r.x.Close()
				s.x.Close()
			})
		})
	}
}
