package load

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"gopherlog/bench/scenario"
)

// What every guarantee shares, so that nothing but the guarantee differs between two columns of a comparison.
const (
	inflightRequests = 5
	deliveryTimeout  = 30 * time.Second
)

// ConfigOf is the settings table: what guarantee g fixes for producers, with the scenario's choices and overrides filled in.
func ConfigOf(g scenario.Guarantee, p scenario.Producers, maxOutstanding int) (ProducerConfig, error) {
	c := ProducerConfig{Acks: -1, Retries: -1, DeliveryTimeout: deliveryTimeout, RequestTimeout: requestTimeout, Inflight: inflightRequests,
		Linger: p.Linger, BatchBytes: int(p.BatchBytes), Compression: p.Compression, MaxOutstanding: maxOutstanding, Overrides: p.Overrides}
	switch g {
	case scenario.AtMostOnce:
		c.Acks, c.Retries = 1, 0
	case scenario.AtLeastOnce:
	case scenario.Idempotent:
		c.Idempotent = true
	case scenario.Transactional, scenario.TwoPhaseCommit:
		c.Idempotent, c.TransactionTimeout = true, p.Transaction.Timeout
	default:
		return c, fmt.Errorf("load: no producer settings for guarantee %q", g)
	}
	for _, key := range sortedKeys(p.Overrides) {
		if err := c.override(key, p.Overrides[key]); err != nil {
			return c, fmt.Errorf("load: producers.overrides: %s: %w", key, err)
		}
	}
	return c, nil
}

// votedPrefix begins the transactional ids of two_phase_commit.
const votedPrefix = "2pc."

// VotesOn says whether brokers that vote on transactional ids with a prefix vote on those of two_phase_commit.
func VotesOn(prefix string) bool { return prefix != "" && strings.HasPrefix(votedPrefix, prefix) }

// TransactionalID names producer i of a run, behind the prefix of everything that the run creates; empty where the guarantee has no
// transactions.
func TransactionalID(g scenario.Guarantee, prefix string, run uint64, i int) string {
	if !g.Transacts() {
		return ""
	}
	if prefix == "" {
		prefix = "mqbench-"
	}
	id := fmt.Sprintf("%s%x-%02d", prefix, run, i)
	if g == scenario.TwoPhaseCommit {
		return votedPrefix + id
	}
	return id
}

func (c *ProducerConfig) override(key, value string) (err error) {
	switch key {
	case "acks":
		if value == "all" {
			value = "-1"
		}
		c.Acks, err = strconv.Atoi(value)
	case "retries":
		c.Retries, err = strconv.Atoi(value)
	case "max_in_flight":
		c.Inflight, err = strconv.Atoi(value)
	case "delivery_timeout":
		c.DeliveryTimeout, err = time.ParseDuration(value)
	case "request_timeout":
		c.RequestTimeout, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("not one of %v", scenario.OverrideKeys())
	}
	return err
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
