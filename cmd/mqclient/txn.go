package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"gopherlog/cmd/internal/cli"
)

type txnCmds struct {
	List        txnList        `cmd:"" help:"List transactional ids: state, phase of a vote, producer, how long a transaction is open and its partitions may be in doubt."`
	Describe    txnDescribe    `cmd:"" help:"Show a transactional id and the partitions of its transaction."`
	FindHanging txnFindHanging `cmd:"" help:"Find transactions that are open in a partition and that no coordinator will end."`
	Abort       txnAbort       `cmd:"" help:"Abort the open transaction of a transactional id and shut its producer out, or with -topic and -offset a hanging one in a partition."`
}

type txnList struct {
	State  []string      `help:"Only ids in these states of Kafka's, as in Ongoing,PrepareCommit." placeholder:"STATE"`
	Longer time.Duration `help:"Only transactions that are open for longer." placeholder:"DURATION"`
	Match  string        `help:"Only ids that match the whole of this regular expression." placeholder:"REGEXP"`
}

// txnStates are Kafka's.
var txnStates = []string{"CompleteAbort", "CompleteCommit", dead, "Empty", "Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence"}

// txnLine is one transactional id of a list.
type txnLine struct {
	ID          string  `json:"transactional_id"`
	State       string  `json:"state"`
	Phase       string  `json:"phase,omitempty"` // what the coordinator of a voted transaction is at
	Producer    int64   `json:"producer_id"`
	Epoch       int16   `json:"epoch"`
	Partitions  int     `json:"partitions"`
	Open        float64 `json:"open_seconds"`     // -1: no transaction is open
	InDoubt     float64 `json:"in_doubt_seconds"` // since a vote was asked for; -1: no partition can be in doubt
	Coordinator int32   `json:"coordinator"`
}

// Run prints one line per transactional id.
func (c *txnList) Run(s *session) error {
	match, err := regexp.Compile("^(?:" + c.Match + ")$")
	if err != nil {
		return cli.Usage(fmt.Errorf("-match %s: %w", c.Match, err))
	}
	states, err := knownStates(c.State, txnStates)
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	listed, short := transactions(ctx, admin, nil, states)
	if short != nil && !isUnheard(short) {
		return short
	}
	ids := slices.DeleteFunc(listed.TransactionalIDs(), func(id string) bool { return c.Match != "" && !match.MatchString(id) })
	described, err := s.described(ids)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !s.json {
		fmt.Fprintln(w, "TRANSACTIONAL ID\tSTATE\tPHASE\tPRODUCER\tPARTITIONS\tOPEN\tIN DOUBT\tCOORDINATOR")
	}
	now := time.Now()
	for _, id := range ids {
		d := described[id]
		if d.Err != nil {
			continue // gone meanwhile
		}
		line := lineOf(d, now)
		if c.Longer > 0 && line.Open <= c.Longer.Seconds() {
			continue
		}
		if s.json {
			if err := s.printJSON(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d:%d\t%d\t%s\t%s\t%d\n", line.ID, line.State, cmp.Or(line.Phase, "-"), line.Producer, line.Epoch, line.Partitions,
			age(line.Open), age(line.InDoubt), line.Coordinator)
	}
	return errors.Join(w.Flush(), short)
}

// transactions are the transactional ids of all coordinators. With an error that isUnheard those of some are missing.
func transactions(ctx context.Context, admin *kadm.Client, producers []int64, states []string) (listed kadm.ListedTransactions, err error) {
	err = fromAll(ctx, admin, txnShards, keep(ctx, &listed, func() (kadm.ListedTransactions, error) { return admin.ListTransactions(ctx, producers, states) }))
	if err != nil {
		err = refused("list transactions", err, "")
	}
	return listed, err
}

// described asks the coordinators of transactional ids about them. One that is gone by now has an error.
func (s *session) described(ids []string) (all map[string]txnShown, err error) {
	if len(ids) == 0 {
		return all, nil
	}
	ctx, cancel := s.limit()
	defer cancel()
	err = coordinated(ctx, func() (err error) {
		all, err = s.describe(ctx, ids...)
		for _, d := range all {
			if err == nil && d.Err != nil && !errors.Is(d.Err, kerr.TransactionalIDNotFound) {
				err = d.Err
			}
		}
		return err
	})
	if err != nil {
		return nil, refused("describe transactions", err, "")
	}
	return all, nil
}

func lineOf(d txnShown, now time.Time) txnLine {
	line := txnLine{ID: d.TxnID, State: d.State, Phase: d.phase, Producer: d.ProducerID, Epoch: d.ProducerEpoch, Open: -1, InDoubt: -1, Coordinator: d.Coordinator}
	for _, t := range d.Topics {
		line.Partitions += len(t)
	}
	if d.StartTimestamp >= 0 && unfinished(d.State) {
		line.Open = max(0, now.Sub(time.UnixMilli(d.StartTimestamp)).Seconds())
	}
	if d.inDoubt > 0 {
		line.InDoubt = max(0, now.Sub(time.UnixMilli(d.inDoubt)).Seconds())
	}
	return line
}

// unfinished says that a transaction is open, or decided and still ending.
func unfinished(state string) bool {
	switch state {
	case "Empty", "CompleteCommit", "CompleteAbort", "Dead":
		return false
	}
	return true
}

// age is a number of seconds for people; below zero it means nothing.
func age(seconds float64) string {
	if seconds < 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// txnName is the transactional id of a command, given with -id or as an argument.
type txnName struct {
	Name string `arg:"" optional:"" name:"name" help:"The transactional id."`
	ID   string `name:"id" help:"The transactional id, instead of the argument." placeholder:"ID"`
}

func (n txnName) get() (string, error) {
	switch {
	case n.Name != "" && n.ID != "" && n.Name != n.ID:
		return "", cli.Usage(fmt.Errorf("two transactional ids are given, %s and %s: give one", n.Name, n.ID))
	case n.Name != "":
		return n.Name, nil
	case n.ID != "":
		return n.ID, nil
	}
	return "", cli.Usage(errors.New("which transactional id? give it, as in -id billing-1"))
}

type txnDescribe struct{ txnName }

// txnDetail is a transactional id in full.
type txnDetail struct {
	txnLine
	Timeout float64  `json:"timeout_seconds"`
	Topics  []string `json:"topics"` // topic and partitions
}

// Run prints the transactional id.
func (c *txnDescribe) Run(s *session) error {
	id, err := c.get()
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	d, err := s.transaction(admin, id)
	if err != nil {
		return cmp.Or(s.doubtOf(admin, id), err)
	}
	out := txnDetail{txnLine: lineOf(d, time.Now()), Timeout: float64(d.TimeoutMillis) / 1000, Topics: partitionsOf(d)}
	if s.json {
		return s.printJSON(out)
	}
	state := out.State
	if out.Phase != "" {
		state += " (" + out.Phase + ")"
	}
	fmt.Fprintf(s.out, "%s: %s, producer %d epoch %d, timeout %s, coordinator %d\n", id, state, out.Producer, out.Epoch,
		time.Duration(d.TimeoutMillis)*time.Millisecond, out.Coordinator)
	if out.Open >= 0 {
		fmt.Fprintf(s.out, "open for %s, in %d partition(s): %s\n", age(out.Open), out.Partitions, strings.Join(out.Topics, " "))
	}
	if out.InDoubt >= 0 {
		fmt.Fprintf(s.out, "in doubt for %s: the partitions were asked to promise, and not all were told the outcome\n", age(out.InDoubt))
	}
	return nil
}

// partitionsOf are the partitions of a transaction, a topic each.
func partitionsOf(d txnShown) []string {
	out := []string{}
	for _, t := range d.Topics.Sorted() {
		out = append(out, fmt.Sprintf("%s[%s]", t.Topic, ranges(t.Partitions)))
	}
	return out
}

// transaction asks a transactional id's coordinator about it.
func (s *session) transaction(admin *kadm.Client, id string) (d txnShown, err error) {
	ctx, cancel := s.limit()
	defer cancel()
	err = coordinated(ctx, func() error {
		all, err := s.describe(ctx, id)
		if d = all[id]; err == nil {
			err = d.Err
		}
		return err
	})
	if errors.Is(err, kerr.TransactionalIDNotFound) {
		return d, fmt.Errorf("describe %s: there is no such transactional id", id)
	}
	if err != nil {
		return d, refused("describe "+id, s.unled(admin, txnShards, err), "")
	}
	return d, nil
}
