package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/cmd/internal/cli"
)

type clusterCmds struct {
	Status  clusterStatus  `cmd:"" help:"Show the nodes, who is in charge, and partitions that lack a leader or replicas. Exit code 1 when something is wrong."`
	Recover clusterRecover `cmd:"" help:"Let replicas vote again that may have lost data in a power loss."`
}

// nodeLine is one node of a cluster.
type nodeLine struct {
	Node       int32    `json:"node"`
	Address    string   `json:"address"`
	Rack       string   `json:"rack,omitempty"`
	Controller bool     `json:"controller,omitempty"`
	Leads      int      `json:"leads"`
	Admin      string   `json:"admin,omitempty"`
	State      string   `json:"state"`
	Reasons    []string `json:"reasons,omitempty"`
	Failed     []string `json:"failed,omitempty"`
	Suspect    []string `json:"suspect,omitempty"`
}

type clusterReport struct {
	Cluster    string     `json:"cluster"`
	Nodes      []nodeLine `json:"nodes"`
	Topics     int        `json:"topics"`
	Partitions int        `json:"partitions"`
	Leaderless []string   `json:"leaderless"`
	Behind     []string   `json:"under_replicated"`

	leaderless, behind []shard // the same, for people
}

type clusterStatus struct{}

// Run prints the state and fails when something needs attention.
func (c *clusterStatus) Run(s *session) error {
	r, err := look(s)
	if err != nil {
		return err
	}
	if s.json {
		err = s.printJSON(r)
	} else {
		err = r.print(s)
	}
	if err != nil {
		return err
	}
	if wrong := r.wrong(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", "))
	}
	return nil
}

// look asks the cluster about itself, and each node at its HTTP port if it has one that can be reached.
func look(s *session) (*clusterReport, error) {
	admin, err := s.admin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ctx, cancel := s.limit()
	defer cancel()
	m, err := admin.Metadata(ctx)
	if err != nil {
		return nil, refused("ask for the cluster's metadata", err, "")
	}
	r := &clusterReport{Cluster: m.Cluster, Leaderless: []string{}, Behind: []string{}}
	leads := map[int32]int{}
	for _, t := range m.Topics.Sorted() {
		r.Topics++
		for _, p := range t.Partitions.Sorted() {
			r.Partitions++
			leads[p.Leader]++
			at := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			if p.Leader < 0 {
				r.Leaderless, r.leaderless = append(r.Leaderless, at), append(r.leaderless, shard{t.Topic, p.Partition})
			}
			if len(p.ISR) < len(p.Replicas) {
				r.Behind, r.behind = append(r.Behind, at), append(r.behind, shard{t.Topic, p.Partition})
			}
		}
	}
	for _, b := range m.Brokers {
		r.Nodes = append(r.Nodes, nodeLine{Node: b.NodeID, Address: net.JoinHostPort(b.Host, fmt.Sprint(b.Port)), Controller: b.NodeID == m.Controller, Leads: leads[b.NodeID]})
		if b.Rack != nil {
			r.Nodes[len(r.Nodes)-1].Rack = *b.Rack
		}
	}
	var asked sync.WaitGroup
	for i := range r.Nodes {
		asked.Go(func() { r.Nodes[i].ask(ctx, s, admin) })
	}
	asked.Wait()
	r.Nodes = append(r.Nodes, fenced(ctx, s, r.Nodes)...)
	slices.SortFunc(r.Nodes, func(a, b nodeLine) int { return int(a.Node - b.Node) })
	return r, nil
}

// fenced are the nodes that are registered and not among those that clients are sent to, because the node that was asked
// believes them to be down. A cluster that does not tell of such nodes has none here.
func fenced(ctx context.Context, s *session, known []nodeLine) (out []nodeLine) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil
	}
	for _, b := range resp.Brokers {
		if !slices.ContainsFunc(known, func(n nodeLine) bool { return n.Node == b.NodeID }) {
			out = append(out, nodeLine{Node: b.NodeID, Address: net.JoinHostPort(b.Host, fmt.Sprint(b.Port)), State: stateSilent})
		}
	}
	return out
}

const (
	// stateSilent is the state of a node that the cluster lists and that does not answer here: it is down, or the node
	// that was asked is cut off from the others.
	stateSilent = "does not answer"
	// silentAfter is for how long one node is asked.
	silentAfter = 2 * time.Second
)

// adminAddress is where a node's HTTP port is, "" if it has none.
func adminAddress(ctx context.Context, admin *kadm.Client, node int32) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, silentAfter)
	defer cancel()
	configs, err := admin.DescribeBrokerConfigs(ctx, node)
	if err != nil {
		return "", err
	}
	for _, c := range configs {
		if c.Err != nil {
			return "", c.Err
		}
		for _, kv := range c.Configs {
			if kv.Key == "admin.address" {
				return kv.MaybeValue(), nil
			}
		}
	}
	return "", nil
}

// statusAnswer is what a node's HTTP port says about it.
type statusAnswer struct {
	Ready   bool              `json:"ready"`
	Reasons []string          `json:"reasons"`
	Failed  map[string]string `json:"failed"`
	Suspect []string          `json:"suspect"`
}

// ask fills in what the node says to clients and at its HTTP port.
func (n *nodeLine) ask(ctx context.Context, s *session, admin *kadm.Client) {
	n.State = stateSilent
	var err error
	if n.Admin, err = adminAddress(ctx, admin, n.Node); err != nil {
		return
	}
	n.State = "answers"
	if n.Admin == "" {
		return
	}
	var a statusAnswer
	if err := exchange(ctx, http.MethodGet, n.Admin, "/status", &a); err != nil {
		n.State = "HTTP port not reached"
		return
	}
	n.State, n.Reasons, n.Suspect = "ready", a.Reasons, a.Suspect
	if !a.Ready {
		n.State = "not ready"
	}
	for dir, why := range a.Failed {
		n.Failed = append(n.Failed, dir+": "+why)
	}
	slices.Sort(n.Failed)
}

func exchange(ctx context.Context, method, addr, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cli.Environment(errors.New(reason(err)))
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(into) != nil {
		return fmt.Errorf("it answers %s: is that a node's HTTP port?", resp.Status)
	}
	return nil
}

// wrong says what needs attention, in numbers.
func (r *clusterReport) wrong() (out []string) {
	silent, unready, failed, suspect := 0, 0, 0, 0
	for _, x := range r.Nodes {
		failed, suspect = failed+len(x.Failed), suspect+len(x.Suspect)
		switch {
		case x.State == stateSilent:
			silent++
		case len(x.Reasons) > 0:
			unready++
		}
	}
	add := func(n int, one, more string) {
		if n > 0 {
			out = append(out, count(n, one, more))
		}
	}
	add(silent, "node does not answer", "nodes do not answer")
	add(unready, "node is not ready", "nodes are not ready")
	add(failed, "replica is out of service", "replicas are out of service")
	add(suspect, "replica may have lost data", "replicas may have lost data")
	add(len(r.Leaderless), "partition has no leader", "partitions have no leader")
	add(len(r.Behind), "partition lacks replicas", "partitions lack replicas")
	return out
}

func (r *clusterReport) print(s *session) error {
	fmt.Fprintf(s.out, "cluster %s: %d node(s), %d topic(s), %d partition(s)\n", r.Cluster, len(r.Nodes), r.Topics, r.Partitions)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tADDRESS\tLEADS\tSTATE")
	for _, n := range r.Nodes {
		mark := ""
		if n.Controller {
			mark = " (controller)"
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s%s\n", n.Node, n.Address, n.Leads, n.State, mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	list := func(what string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(s.out, "%s: %s\n", what, strings.Join(items, ", "))
		}
	}
	for _, n := range r.Nodes {
		list(fmt.Sprintf("node %d is not ready", n.Node), n.Reasons)
		list(fmt.Sprintf("node %d: replicas out of service", n.Node), n.Failed)
		list(fmt.Sprintf("node %d: replicas that may have lost data in a power loss", n.Node), n.Suspect)
	}
	if len(r.leaderless) > 0 {
		list("without a leader", []string{named(r.leaderless)})
	}
	if len(r.behind) > 0 {
		list("under-replicated", []string{named(r.behind)})
	}
	return nil
}

type clusterRecover struct {
	AfterPowerLoss bool     `help:"Yes, what the lost machines held is given up: replicas that may have lost acknowledged records vote again."`
	Admin          []string `help:"HTTP ports of the nodes, if the cluster does not tell them." placeholder:"HOST:PORT"`
}

// Run makes every node that can be reached trust its own replicas, and names those that were not asked.
func (c *clusterRecover) Run(s *session) error {
	if !c.AfterPowerLoss {
		return cli.Usage(errors.New("this may give up acknowledged records: say so with -after-power-loss, and only when the nodes that are missing will not come back"))
	}
	ports, err := c.ports(s)
	if err != nil {
		return err
	}
	var failed []error
	for _, at := range ports {
		var a struct {
			Replicas int    `json:"replicas"`
			Error    string `json:"error"`
		}
		ctx, cancel := s.limit()
		err := exchange(ctx, http.MethodPost, at, "/recover", &a)
		cancel()
		if err == nil && a.Error != "" {
			err = errors.New(a.Error)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("node at %s: %w", at, err))
			continue
		}
		if err := s.print(map[string]any{"admin": at, "replicas": a.Replicas}, "node at %s: %d replica(s) vote again", at, a.Replicas); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func (c *clusterRecover) ports(s *session) (ports []string, err error) {
	for _, at := range c.Admin {
		if err := checkAddress("-admin", at); err != nil {
			return nil, err
		}
	}
	if len(c.Admin) > 0 {
		return c.Admin, nil
	}
	r, err := look(s)
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes {
		if n.Admin != "" {
			ports = append(ports, n.Admin)
			continue
		}
		why := "tells no HTTP port"
		if n.State == stateSilent {
			why = stateSilent
		}
		if err := s.print(map[string]any{"node": n.Node, "address": n.Address, "not_asked": why}, "node %d at %s %s: it was not asked", n.Node, n.Address, why); err != nil {
			return nil, err
		}
	}
	if len(ports) == 0 {
		return nil, cli.Usage(errors.New("no node tells an HTTP port: start the nodes with -admin and name the ports here with -admin"))
	}
	return ports, nil
}
