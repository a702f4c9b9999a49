package meta

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopherlog/cluster/meta/metapb"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts print into testdata")

// TestScripts runs testdata/*.txt: each line above "----" is a command to the state machine, what stands below is its answer.
// The scripts are the specification; -rewrite makes them say what the code does, and the diff is read.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(raw))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(raw), got); diff != "" {
				t.Errorf("script says -, state machine says +:\n%s", diff)
			}
		})
	}
}

func runScript(t *testing.T, text string) string {
	m := &scripted{t: t, machine: newMachine(nil)}
	var out strings.Builder
	var answers []string
	skipping := false
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "----":
			out.WriteString("----\n" + strings.Join(answers, ""))
			answers, skipping = nil, true
			continue
		case line == "":
			skipping = false
		case skipping:
			continue
		case !strings.HasPrefix(line, "#"):
			answers = append(answers, m.run(line))
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// scripted drives a machine by lines of text.
type scripted struct {
	t       *testing.T
	machine *machine
	index   uint64
	topics  uint64
}

func (s *scripted) run(line string) string {
	words := strings.Fields(line)
	args := map[string]string{}
	var plain []string
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			args[k] = v
		} else {
			plain = append(plain, w)
		}
	}
	if words[0] == "show" {
		return s.show(plain)
	}
	if words[0] == "restart" {
		return s.restart()
	}
	cmd := s.command(words[0], plain, args)
	cmd.Live = ints(args["live"])
	if id, ok := args["request"]; ok {
		cmd.RequestId = []byte(id)
	}
	raw, err := proto.Marshal(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.index++
	return printResult(s.machine.Apply(s.index, raw).(*metapb.Result))
}

// restart goes on with a machine that was restored from the snapshot.
func (s *scripted) restart() string {
	state := s.machine.Snapshot()
	s.machine = newMachine(nil)
	if err := s.machine.Restore(state); err != nil {
		return err.Error() + "\n"
	}
	return "restored\n"
}

func (s *scripted) command(verb string, plain []string, args map[string]string) *metapb.Command {
	num := func(v string) int32 {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			s.t.Fatalf("%q in a script: %v", v, err)
		}
		return int32(n)
	}
	switch verb {
	case "init":
		return &metapb.Command{Op: &metapb.Command_InitCluster{InitCluster: &metapb.InitCluster{ClusterId: plain[0]}}}
	case "register":
		inc, err := strconv.ParseUint(args["disk"], 16, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		b := &metapb.Broker{Id: num(plain[0]), Incarnation: inc, Session: 1, Host: args["host"], Port: 9092, Rack: args["rack"]}
		return &metapb.Command{Op: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{Broker: b}}}
	case "drain", "fence", "unfence":
		op := &metapb.MarkBroker{Id: num(plain[0])}
		if on := verb != "unfence"; verb == "drain" {
			op.Draining = &on
		} else {
			op.Fenced = &on
		}
		return &metapb.Command{Op: &metapb.Command_MarkBroker{MarkBroker: op}}
	case "create":
		s.topics++
		id := make([]byte, 16)
		binary.BigEndian.PutUint64(id[8:], s.topics)
		spec := &metapb.TopicSpec{Name: plain[0], Id: id, Internal: slices.Contains(plain, "internal"), Assignments: lists(args["assign"]), Configs: pairs(args["cfg"])}
		if args["p"] != "" {
			spec.Partitions, spec.ReplicationFactor = num(args["p"]), num(args["rf"])
		}
		return &metapb.Command{Op: &metapb.Command_CreateTopics{CreateTopics: &metapb.CreateTopics{Topics: []*metapb.TopicSpec{spec}}}}
	case "delete":
		return &metapb.Command{Op: &metapb.Command_DeleteTopics{DeleteTopics: &metapb.DeleteTopics{Topics: []*metapb.TopicRef{s.ref(plain, args)}}}}
	case "partitions":
		spec := &metapb.PartitionsSpec{Name: plain[0], Count: num(plain[1]), Assignments: lists(args["assign"])}
		return &metapb.Command{Op: &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{Topics: []*metapb.PartitionsSpec{spec}}}}
	case "config":
		ops := &metapb.TopicConfigOps{Name: plain[0]}
		for _, key := range slices.Sorted(maps.Keys(args)) {
			ops.Ops = append(ops.Ops, &metapb.ConfigOp{Key: key, Value: args[key]})
		}
		for _, key := range plain[1:] {
			ops.Ops = append(ops.Ops, &metapb.ConfigOp{Key: key, Kind: metapb.ConfigOp_DELETE})
		}
		return &metapb.Command{Op: &metapb.Command_AlterConfigs{AlterConfigs: &metapb.AlterConfigs{Topics: []*metapb.TopicConfigOps{ops}}}}
	case "lead":
		name, part, _ := strings.Cut(plain[0], "/")
		u := &metapb.LeaderUpdate{TopicId: make([]byte, 16), Partition: num(part), Leader: num(args["leader"]), Term: num(args["term"]), Isr: ints(args["isr"])}
		if t := s.machine.img.Topic(name); t != nil {
			u.TopicId = t.ID[:]
		}
		return &metapb.Command{Op: &metapb.Command_PublishLeaders{PublishLeaders: &metapb.PublishLeaders{Updates: []*metapb.LeaderUpdate{u}}}}
	case "ids":
		return &metapb.Command{Op: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{Count: num(plain[0])}}}
	}
	s.t.Fatalf("unknown verb %q in a script", verb)
	return nil
}

func (s *scripted) ref(plain []string, args map[string]string) *metapb.TopicRef {
	if args["id"] == "" {
		return &metapb.TopicRef{Name: plain[0]}
	}
	n, err := strconv.ParseUint(args["id"], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return &metapb.TopicRef{Id: binary.BigEndian.AppendUint64(make([]byte, 8), n)}
}

func printResult(r *metapb.Result) string {
	var b strings.Builder
	for _, o := range r.Outcomes {
		switch {
		case o.Code != metapb.Code_OK:
			fmt.Fprintf(&b, "%v: %s\n", o.Code, o.Message)
		case o.Name != "":
			fmt.Fprintf(&b, "ok, %d partitions of %d replicas\n", o.Partitions, o.ReplicationFactor)
		default:
			fmt.Fprintf(&b, "ok at %d", r.Index)
			if r.FirstProducerId != 0 {
				fmt.Fprintf(&b, ", ids from %d", r.FirstProducerId)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func (s *scripted) show(what []string) string {
	img := s.machine.img
	var b strings.Builder
	for _, id := range img.BrokerIDs() {
		br := img.Brokers[id]
		if slices.Contains(what, "brokers") {
			fmt.Fprintf(&b, "broker %v host=%s draining=%v fenced=%v\n", br.ServerID(), br.Host, br.Draining, br.Fenced)
		}
	}
	for _, name := range img.TopicNames() {
		t := img.Topics[name]
		if !slices.Contains(what, name) {
			continue
		}
		fmt.Fprintf(&b, "%s id=%d %v\n", name, t.ID[15], t.Configs)
		for i, p := range t.Partitions {
			fmt.Fprintf(&b, "  %d %v leader=%d term=%d isr=%v", i, p.Replicas, p.Leader, p.Term, p.ISR)
			if !slices.Equal(p.Servers, p.Founders) {
				fmt.Fprintf(&b, " servers=%v", p.Servers)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func ints(s string) (out []int32) {
	for f := range strings.SplitSeq(s, ",") {
		if n, err := strconv.ParseInt(f, 10, 32); err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

func lists(s string) (out []*metapb.NodeList) {
	if s == "" {
		return nil
	}
	for l := range strings.SplitSeq(s, ";") {
		out = append(out, &metapb.NodeList{Nodes: ints(l)})
	}
	return out
}

func pairs(s string) map[string]string {
	k, v, ok := strings.Cut(s, ":")
	if !ok {
		return nil
	}
	return map[string]string{k: v}
}
