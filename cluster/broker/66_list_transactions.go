package broker

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cluster/coordinator"
	"gopherlog/txn/kafkatx"
)

var listTransactionsAPI = api{
	key: 66, name: "ListTransactions", min: 0, max: 2,
	maxFrame: maxControlFrame,
	serve:    whenReady(listTransactions),
	notes: []string{
		"The transactional ids whose shards this node leads: ask every broker for all of them; while one of them is loading the answer is COORDINATOR_LOAD_IN_PROGRESS, with those of the others. A pattern (version 2) must fit the whole id; one that is no regular expression, or has more than 1,024 bytes, is INVALID_REGULAR_EXPRESSION.",
	},
}

// maxPattern bounds the time in which coordinators that compare all their ids with a pattern do nothing else.
const maxPattern = 1 << 10

func listTransactions(c *call, req *kmsg.ListTransactionsRequest, answer func(kmsg.Response)) {
	resp := kmsg.NewPtrListTransactionsResponse()
	resp.TransactionStates = []kmsg.ListTransactionsResponseTransactionState{}
	resp.UnknownStateFilters = []string{}
	slices.Sort(req.ProducerIDFilters)
	f := coordinator.TxnFilter{ProducerIDs: req.ProducerIDFilters, Longer: time.Duration(max(req.DurationFilterMillis, 0)) * time.Millisecond}
	for _, name := range req.StateFilters {
		if s, known := txnStatus(name); known && !slices.Contains(f.States, s) {
			f.States = append(f.States, s)
		} else if !known {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	if len(f.States) == 0 && len(req.StateFilters) > 0 {
		answer(resp) // nothing can be in a state that nobody knows
		return
	}
	if p := text(req.TransactionalIDPattern); p != "" {
		re, err := regexp.Compile("^(?:" + p[:min(len(p), maxPattern+1)] + ")$")
		if err != nil || len(p) > maxPattern {
			resp.ErrorCode = c.refuse(codeInvalidRegularExpression)
			answer(resp)
			return
		}
		f.Pattern = re
	}
	c.cfg.Transactions.List(f, func(all []coordinator.TxnDescribed, code kafkatx.Code) {
		resp.ErrorCode = c.refuse(int16(code))
		slices.SortFunc(all, func(a, b coordinator.TxnDescribed) int { return strings.Compare(a.ID, b.ID) })
		for _, d := range all {
			out := kmsg.NewListTransactionsResponseTransactionState()
			out.TransactionalID, out.ProducerID, out.TransactionState = d.ID, d.ProducerID, d.Status.String()
			resp.TransactionStates = append(resp.TransactionStates, out)
		}
		answer(resp)
	})
}

// txnStatus is the state with that name of Kafka's.
func txnStatus(name string) (kafkatx.Status, bool) {
	for s := kafkatx.Empty; s <= kafkatx.PrepareEpochFence; s++ {
		if strings.EqualFold(s.String(), name) {
			return s, true
		}
	}
	return 0, false
}
