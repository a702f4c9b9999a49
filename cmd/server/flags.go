package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"gopherlog/cluster/meta"
	"gopherlog/cluster/rpc"
	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/wire"
	"gopherlog/txn/group"
	"gopherlog/txn/kafkatx"
)

// nodeFlags are the flags of one node.
type nodeFlags struct {
	ID           int32             `help:"This node's id, from 1 on." default:"1" name:"id"`
	Addr         string            `help:"Where Kafka clients connect; :9092 takes all interfaces. Default: ${default}." default:"127.0.0.1:9092" placeholder:"HOST:PORT"`
	RPC          string            `help:"Where the other nodes connect. Default: this node's own address in -peers." name:"rpc" placeholder:"HOST:PORT"`
	Peers        string            `help:"All nodes, as 1@host1:9093,2@host2:9093: where this node dials each. Without it the node is alone." placeholder:"ID@HOST:PORT,..."`
	Data         string            `help:"Data directory; made if missing. Default: ${default}." default:"./data" placeholder:"DIR"`
	Advertise    string            `help:"Address that clients are told. Default: the one they came in by." placeholder:"HOST:PORT"`
	Rack         string            `help:"Rack that clients are told."`
	Admin        string            `help:"HTTP port with /livez, /readyz and /metrics. Default: none." placeholder:"HOST:PORT"`
	Pprof        bool              `help:"Add /debug/pprof to the HTTP port."`
	Control      string            `help:"Test-control port, which plants faults: loopback only, with -control-token. Default: none." placeholder:"HOST:PORT"`
	ControlToken string            `help:"Token that each request to the control port must carry." placeholder:"TOKEN"`
	BindSource   string            `help:"Source address for dialling other nodes. Default: the host of -rpc, if it is an address." placeholder:"IP"`
	BootID       string            `help:"Identity of this run of the machine; another one than before means that it lost power. Default: the kernel's." name:"boot-id" placeholder:"ID"`
	Set          map[string]string `help:"Default of a topic setting by Kafka's name, as in flush.messages=1, or a setting of the node: num.partitions, default.replication.factor, auto.create.topics.enable, max.connections, socket.request.max.bytes, queued.max.request.bytes, group.initial.rebalance.delay.ms, group.min.session.timeout.ms, group.max.session.timeout.ms, group.max.size, offsets.retention.minutes, transaction.max.timeout.ms, transactional.id.expiration.ms. May be repeated." placeholder:"KEY=VALUE"`
	LogLevel     string            `help:"Least level that is logged: ${enum}." enum:"debug,info,warn,error" default:"info"`
	LogFormat    string            `help:"Form of the log on standard error: ${enum}." enum:"text,json" default:"text"`
	Config       string            `help:"YAML file whose keys are these flags' names." placeholder:"FILE"`
}

// settings are checked flags.
type settings struct {
	flags         nodeFlags
	peers         map[rpc.NodeID]string // the others
	rpc           string                // "" when the node is alone
	announce      string                // where nodes that do not list this one dial it
	source        net.IP
	advertiseHost string
	advertisePort int32 // 0: that of -addr
	topics        map[string]string
	node          nodeSettings
}

// nodeSettings are what -set says about the node itself.
type nodeSettings struct {
	partitions, replication int32
	noAutoCreate            bool
	limits                  wire.Limits
	groups                  group.Config
	transactions            kafkatx.Config
	voted                   votedSettings
}

// check reports all mistakes at once.
func (f nodeFlags) check() (*settings, error) {
	s := &settings{flags: f, topics: map[string]string{}, node: defaultNodeSettings()}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if f.ID < 1 {
		note(fmt.Errorf("-id is %d: give a number from 1 on", f.ID))
	}
	if f.Data == "" {
		note(errors.New("-data is empty: give a directory"))
	}
	note(checkAddress("-addr", f.Addr, true))
	note(checkAddress("-admin", f.Admin, false))
	note(checkAddress("-control", f.Control, false))
	note(s.checkPeers())
	note(s.checkAdvertise())
	note(s.checkSource())
	if (f.Control == "") != (f.ControlToken == "") {
		note(errors.New("-control and -control-token belong together: give both or none"))
	}
	if f.Pprof && f.Admin == "" {
		note(errors.New("-pprof needs the HTTP port: give -admin too"))
	}
	for _, key := range slices.Sorted(maps.Keys(f.Set)) {
		note(s.set(key, f.Set[key]))
	}
	note(s.checkGroups())
	if len(errs) > 0 {
		return nil, cli.Usage(errors.Join(errs...))
	}
	return s, nil
}

func checkAddress(flag, addr string, required bool) error {
	if addr == "" {
		if required {
			return fmt.Errorf("%s is empty: give HOST:PORT, or :PORT for all interfaces", flag)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s is %q: give HOST:PORT, as in 127.0.0.1:9092", flag, addr)
	}
	return nil
}

func (s *settings) checkPeers() error {
	all, err := parsePeers(s.flags.Peers)
	if err != nil {
		return err
	}
	self := rpc.NodeID(s.flags.ID)
	s.rpc, s.announce = cmp.Or(s.flags.RPC, all[self]), cmp.Or(all[self], s.flags.RPC)
	delete(all, self)
	s.peers = all
	switch {
	case s.rpc != "":
		return checkAddress("-rpc", s.rpc, true)
	case len(all) > 0:
		return fmt.Errorf("-peers names other nodes, but not node %d itself: add %d@HOST:PORT to it, or give -rpc HOST:PORT, where they reach this one", self, self)
	}
	return nil
}

func parsePeers(text string) (map[rpc.NodeID]string, error) {
	out := map[rpc.NodeID]string{}
	if text == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(part), "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 1 || checkAddress("", addr, true) != nil {
			return nil, fmt.Errorf("-peers: %q is not ID@HOST:PORT, as in 2@127.0.1.2:9093", part)
		}
		if old, twice := out[rpc.NodeID(n)]; twice {
			return nil, fmt.Errorf("-peers: node %d stands there twice, at %s and at %s", n, old, addr)
		}
		out[rpc.NodeID(n)] = addr
	}
	return out, nil
}

func (s *settings) checkAdvertise() error {
	if s.flags.Advertise == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.flags.Advertise)
	if err != nil { // a host alone: the port of -addr
		if strings.ContainsAny(s.flags.Advertise, ":/ ") {
			return fmt.Errorf("-advertise is %q: give HOST:PORT", s.flags.Advertise)
		}
		s.advertiseHost = s.flags.Advertise
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return fmt.Errorf("-advertise is %q: give HOST:PORT, which clients can dial", s.flags.Advertise)
	}
	s.advertiseHost, s.advertisePort = host, int32(n)
	return nil
}

func (s *settings) checkSource() error {
	text := s.flags.BindSource
	if text == "" {
		host, _, _ := net.SplitHostPort(s.rpc)
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
			s.source = ip
		}
		return nil
	}
	if s.source = net.ParseIP(text); s.source == nil {
		return fmt.Errorf("-bind-source is %q: give an IP address of this machine", text)
	}
	return nil
}

// set takes one -set: a setting of the node, or the default of a topic setting.
func (s *settings) set(key, value string) error {
	number := func(to func(int64), least, most int64) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("-set %s=%s: want a number from %d to %d", key, value, least, most)
		}
		to(n)
		return nil
	}
	switch key {
	case "num.partitions":
		return number(func(n int64) { s.node.partitions = int32(n) }, 1, 10_000)
	case "default.replication.factor":
		return number(func(n int64) { s.node.replication = int32(n) }, 1, 9)
	case "max.connections":
		return number(func(n int64) { s.node.limits.MaxConns = int(n) }, 1, 1<<20)
	case "socket.request.max.bytes":
		return number(func(n int64) { s.node.limits.MaxFrame = int(n) }, 1<<10, 1<<30)
	case "queued.max.request.bytes":
		return number(func(n int64) { s.node.limits.InflightNode = n }, 1<<20, 1<<40)
	case "auto.create.topics.enable":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("-set %s=%s: want true or false", key, value)
		}
		s.node.noAutoCreate = !on
		return nil
	}
	if known, err := s.setGroup(key, number); known {
		return err
	}
	if known, err := s.setTransaction(key, value, number); known {
		return err
	}
	if err := meta.CheckTopicConfig(key, value); err != nil {
		if !slices.Contains(meta.TopicConfigKeys(), key) {
			return fmt.Errorf("-set %s=%s: no such key; server run --help lists those of a node, and of topics there are %s", key, value, strings.Join(meta.TopicConfigKeys(), ", "))
		}
		return fmt.Errorf("-set %s=%s: %w", key, value, err)
	}
	s.topics[key] = value
	return nil
}
