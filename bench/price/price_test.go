package price

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"gopherlog/bench/load"
	"gopherlog/bench/scenario"
)

func options(brokers ...string) Options {
	return Options{Brokers: brokers, Prefix: DefaultPrefix, Guarantees: Guarantees, Rate: 1000, Producers: 2, Partitions: 6, Bytes: 1024, Records: 100, Blocks: 6, Steady: 4500 * time.Millisecond, Seed: 1}
}

func TestOptionsTellEveryMistakeAtOnce(t *testing.T) {
	o := Options{Brokers: []string{"host"}, Prefix: "_x", Guarantees: []scenario.Guarantee{"exactly_once"}}
	err := o.Validate()
	for _, want := range []string{`"host" is not host:port`, `prefix "_x"`, `"exactly_once"`, "at_least_once must be among", "rate", "producers", "partitions", "record", "blocks", "measured part"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err := options("[::1]:9092", "b:1").Validate(); err != nil {
		t.Error(err)
	}
}

func TestRatesAreReadWithAndWithoutUnits(t *testing.T) {
	for text, want := range map[string]float64{"5k/s": 5000, "2.5k": 2500, "700/s": 700, "12": 12, "0": 0, "-1/s": 0, "fast": 0, "NaN": 0} {
		if got, err := ParseRate(text); got != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
}

func TestNamesOfOthersAreNeverOurs(t *testing.T) {
	all, one := NamesUnder(DefaultPrefix, ""), NamesUnder(DefaultPrefix, "ab2c")
	for name, want := range map[string][2]bool{
		"mqbench-price-ab2c-20261130-061400.123-b01-c01-load":             {true, true},
		"2pc.mqbench-price-ab2c-20261130-061400.123-b01-c01-t":            {true, true},
		"mqbench-price-zzzz-20261130-061400.123-try":                      {true, false},
		"mqbench-price-orders":                                            {false, false},
		"mqbench-price-":                                                  {false, false},
		"mqbench-price-ab2c":                                              {false, false},
		"mqbench-20261130-061400.123-b01-c01-load":                        {false, false},
		"theirs-mqbench-price-ab2c-20261130-061400.123-b01":               {false, false},
		"2pc.2pc.mqbench-price-ab2c-20261130-061400.123-b01-c01-t":        {false, false},
		"mqbenchXprice-ab2c-20261130-061400.123-b01-c01-load":             {false, false},
		"mqbench-price-ab2c-20261130-061400-copy-of-what-somebody-wanted": {false, false},
	} {
		if got := [2]bool{all.Ours(name), one.Ours(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if at, ok := all.Begun("mqbench-price-ab2c-20261130-061400.123-try"); !ok || at.Format(time.RFC3339Nano) != "2026-11-30T06:14:00.123Z" {
		t.Errorf("%s, %v", at, ok)
	}
	if tokens := []string{newRun(), newRun()}; !NamesUnder("p-", "").Ours("p-"+tokens[0]+"-20261130-061400.123-x") || tokens[0] == tokens[1] {
		t.Errorf("tokens %v", tokens)
	}
}

func TestPlanIsTheScenarioWithWhatTheUserSays(t *testing.T) {
	o := options("a:1", "b:2")
	o.Rate, o.Producers, o.Partitions, o.Copies, o.Bytes, o.Blocks, o.Saturate, o.Steady = 2500, 3, 4, 2, 200, 3, true, 900*time.Millisecond
	p, err := NewPlan(o, load.Facts{})
	if err != nil || len(p.Scenarios) != 2 {
		t.Fatalf("%v", err)
	}
	for n, s := range p.Scenarios {
		for _, c := range s.Expand() {
			tg := c.Target
			if tg.System != "external" || fmt.Sprint(tg.External.Bootstrap) != "[a:1 b:2]" || tg.External.Prefix != "mqbench-price-"+p.Run+"-" || tg.ReplicationFactor != 2 ||
				c.Producers.Count != 3 || c.Topics[0].Partitions != 4 || c.Load.Value.Size.Fixed != 200 || c.Runs.Repeats != 3 || c.Phases.Sending() != 1200*time.Millisecond || len(c.Faults) != 0 {
				t.Errorf("cell %+v", c)
			}
			if n == 0 && (c.Load.Model != "open" || c.Load.Rate != 2500) || n == 1 && c.Load.Model != "closed" {
				t.Errorf("load %+v", c.Load)
			}
		}
	}
	if n, short := p.Trials(); n != 2*3*(len(Guarantees)-1) || short != 0 {
		t.Errorf("%d trials, %d blocks too many", n, short)
	}
}

func TestPipelineHasATopicAndAGroupOfItsOwnAndTheirRights(t *testing.T) {
	o := options("a:1")
	o.Workers = 2
	p, err := NewPlan(o, load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Scenarios[0].Expand() {
		if len(c.Topics) != 2 || c.Topics[1].Partitions != 6 || c.Consumers.Groups[0].Members != 2 || c.Consumers.Transform.To != "made" || c.Phases.Warmup != gathering {
			t.Errorf("%+v", c)
		}
	}
	for _, r := range []Right{{"Read", "Group", DefaultPrefix}, {"Delete", "Group", DefaultPrefix}} {
		if !p.wants(r) {
			t.Errorf("%s is not wanted", r)
		}
	}
	if text := strings.Join(p.Creates(), "\n"); !strings.Contains(text, "-made,") || !strings.Contains(text, "24 groups") || !strings.Contains(text, "25 transactional ids") {
		t.Error(text)
	}
}

func TestMissingRightOnGroupsIsNamed(t *testing.T) {
	for missing, op := range map[string]kmsg.ACLOperation{"Delete": kmsg.ACLOperationRead, "Read": kmsg.ACLOperationDelete} {
		list := []kfake.ACL{allow(kmsg.ACLResourceTypeGroup, DefaultPrefix, op)}
		for _, r := range topicRights() {
			list = append(list, r)
		}
		c, i := cluster(t, list...)
		o := options(c.ListenAddrs()...)
		o.Workers = 1
		p, err := NewPlan(o, load.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Check(t.Context(), i, time.Now(), false)
		if err != nil || fmt.Sprint(rightsIn(r.Missing)) != "["+missing+" on Group mqbench-price-*]" {
			t.Errorf("%v, %v", err, rightsIn(r.Missing))
		}
	}
}

func TestPlanOfDefaultsEndsWithinTenMinutes(t *testing.T) {
	o := options("a:1")
	o.Saturate, o.Blocks = true, mostBlocks
	p, err := NewPlan(o, load.Facts{})
	if err != nil || p.Takes() > MostTime-time.Minute {
		t.Errorf("%v, %s", err, p.Takes())
	}
}

// cluster is a fake one whose user ada has some rights.
func cluster(t *testing.T, rights ...kfake.ACL) (*kfake.Cluster, *load.Inspector) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "ada", "hush", rights...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, connect(t, c, "ada", "hush")
}

func connect(t *testing.T, c *kfake.Cluster, user string, password load.Secret) *load.Inspector {
	t.Helper()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: c.ListenAddrs(), Security: &load.Security{Mechanism: "PLAIN", User: user, Password: password}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

func allow(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
}

// topicRights are what any run takes.
func topicRights() map[string]kfake.ACL {
	out := map[string]kfake.ACL{}
	for name, op := range map[string]kmsg.ACLOperation{"Create": kmsg.ACLOperationCreate, "Write": kmsg.ACLOperationWrite, "Read": kmsg.ACLOperationRead,
		"Delete": kmsg.ACLOperationDelete, "DescribeConfigs": kmsg.ACLOperationDescribeConfigs} {
		out[name] = allow(kmsg.ACLResourceTypeTopic, DefaultPrefix, op)
	}
	out["TransactionalId"] = allow(kmsg.ACLResourceTypeTransactionalId, DefaultPrefix, kmsg.ACLOperationWrite)
	return out
}

func left(t *testing.T, c *kfake.Cluster) []string {
	t.Helper()
	l, err := connect(t, c, "root", "root").Find(t.Context(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return l.List()
}

func TestEachMissingRightIsNamedAndNothingIsLeft(t *testing.T) {
	for missing, want := range map[string]string{
		"":                "[]",
		"Create":          "[Create on Topic mqbench-price-*]",
		"Read":            "[Read on Topic mqbench-price-*]",
		"Delete":          "[Delete on Topic mqbench-price-*]",
		"TransactionalId": "[Write on TransactionalId mqbench-price-*]",
		"DescribeConfigs": "[]", // the run goes on, and says so
	} {
		rights := topicRights()
		delete(rights, missing)
		var list []kfake.ACL
		for _, r := range rights {
			list = append(list, r)
		}
		c, i := cluster(t, list...)
		p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Check(t.Context(), i, time.Now(), false)
		if err != nil {
			t.Errorf("without %s: %v", missing, err)
			continue
		}
		if got := fmt.Sprint(rightsIn(r.Missing)); got != want || (missing == "DescribeConfigs") != (len(r.Notes) == 1) {
			t.Errorf("without %s: %s, notes %v", missing, got, r.Notes)
		}
		if got := fmt.Sprint(r.Without); missing == "TransactionalId" && (!strings.HasPrefix(got, "[at_most_once at_least_once idempotent") || strings.Contains(got, "transactional") ||
			!strings.Contains(r.Text("", "b:1"), "-guarantees at_most_once,at_least_once,idempotent")) || missing == "Read" && len(r.Without) != 0 {
			t.Errorf("without %s can be priced: %s\n%s", missing, got, r.Text("", "b:1"))
		}
		if missing == "" && (r.Copies != 1 || r.Effective["min.insync.replicas"] == "" || len(r.Untried) != 0) {
			t.Errorf("%+v", r)
		}
		if l := left(t, c); len(l) > 0 {
			t.Errorf("without %s: left are %v", missing, l)
		}
	}
}

func TestWhoMayDoNothingIsToldEverythingAndHowToGrantIt(t *testing.T) {
	c, i := cluster(t)
	p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Check(t.Context(), i, time.Now(), false)
	if err != nil {
		t.Fatal(err)
	}
	text := r.Text("User:ada", "b:9092")
	for _, want := range []string{"Create on Topic mqbench-price-*", "Delete on Topic mqbench-price-*", "IdempotentWrite on the Cluster", "✗ Write on TransactionalId mqbench-price-*", "? Write on Topic mqbench-price-*",
		"kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation Create --operation Delete --operation Describe --operation Write --operation Read --topic mqbench-price- --resource-pattern-type prefixed",
		"kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation IdempotentWrite --cluster",
		"kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ada --operation Write --operation Describe --transactional-id mqbench-price- --resource-pattern-type prefixed"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\ndoes not say %s", text, want)
		}
	}
	if strings.Contains(text, "can be priced") {
		t.Errorf("%s\noffers what cannot be had either", text)
	}
}

func TestTransactionsThatFailOtherwiseAreLeftOut(t *testing.T) {
	var list []kfake.ACL
	for _, r := range topicRights() {
		list = append(list, r)
	}
	c, i := cluster(t, list...)
	c.ControlKey(26, func(r kmsg.Request) (kmsg.Response, error, bool) { // EndTxn
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = 59 // whose description has four sentences
		return resp, nil, true
	})
	p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Check(t.Context(), i, time.Now(), false)
	if err != nil || len(r.Missing) != 0 || fmt.Sprint(p.Priced()) != "[at_most_once at_least_once idempotent]" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "UNKNOWN_PRODUCER_ID") || strings.Contains(r.Notes[0], ". ") {
		t.Errorf("%v, %+v, %v", err, r, p.Priced())
	}
	for _, s := range p.Scenarios {
		if len(s.Expand()) != 3 {
			t.Errorf("%d cells", len(s.Expand()))
		}
	}
}

func TestVotedCommitIsPricedWhereBrokersSayThatTheyServeIt(t *testing.T) {
	for prefix, want := range map[string]bool{"": false, "2pc.": true, "other.": false} {
		p, err := NewPlan(options("a:1"), load.Facts{VotedPrefix: prefix})
		if err != nil || slices.Contains(p.Priced(), scenario.TwoPhaseCommit) != want || (p.Unavailable[scenario.TwoPhaseCommit] == "") != want {
			t.Errorf("%q: %v, %v, %v", prefix, err, p.Priced(), p.Unavailable)
		}
		if want && (!slices.Contains(p.Wants(), Right{"Write", "TransactionalId", "2pc.mqbench-price-"}) || !strings.Contains(strings.Join(p.Creates(), "\n"), "2pc.mqbench-price-"+p.Run)) {
			t.Errorf("%v\n%v", p.Wants(), p.Creates())
		}
	}
}

func TestDryCheckChangesNothing(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	var wrote atomic.Int64
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		create, ok := r.(*kmsg.CreateTopicsRequest)
		if ok && !create.ValidateOnly || slices.Contains([]int16{0, 11, 28, 26}, r.Key()) {
			wrote.Add(1)
		}
		if take, ok := r.(*kmsg.InitProducerIDRequest); ok && take.TransactionalID != nil {
			wrote.Add(1)
		}
		return nil, nil, false
	})
	p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Check(t.Context(), i, time.Now(), true)
	if err != nil || len(r.Missing) != 0 || wrote.Load() != 0 {
		t.Errorf("%v, %v, %d requests that change something", err, r.Missing, wrote.Load())
	}
}

func TestTopicThatMayBeCreatedAndNotRemovedIsNamed(t *testing.T) {
	rights := topicRights()
	delete(rights, "Delete")
	var list []kfake.ACL
	for _, r := range rights {
		list = append(list, r)
	}
	c, i := cluster(t, list...)
	c.ControlKey(20, func(r kmsg.Request) (kmsg.Response, error, bool) { // as Kafka answers of a topic that does not exist to who may describe it
		req := r.(*kmsg.DeleteTopicsRequest)
		resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
		for _, name := range append(req.TopicNames, topicsOf(req)...) {
			resp.Topics = append(resp.Topics, kmsg.DeleteTopicsResponseTopic{Topic: kmsg.StringPtr(name), ErrorCode: 3})
		}
		return resp, nil, true
	})
	p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Check(t.Context(), i, time.Now(), false)
	if err != nil || fmt.Sprint(rightsIn(r.Missing)) != "[Delete on Topic mqbench-price-*]" || !strings.HasSuffix(r.Left, "-try") || !strings.Contains(r.Text("", "b:1"), r.Left) {
		t.Errorf("%v, %+v", err, r)
	}
	if got := fmt.Sprint(left(t, c)); got != "[topic "+r.Left+"]" {
		t.Errorf("left are %s", got)
	}
}

func topicsOf(r *kmsg.DeleteTopicsRequest) (out []string) {
	for _, x := range r.Topics {
		out = append(out, *x.Topic)
	}
	return out
}

func TestInterruptedCheckLeavesNothing(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	i, err := load.NewInspector(load.KafkaConfig{Bootstrap: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) { // with the first record
		cancel()
		return nil, nil, false
	})
	p, err := NewPlan(options(c.ListenAddrs()...), load.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Check(ctx, i, time.Now(), false); err == nil {
		t.Error("an interrupted check says that all rights are there")
	}
	l, err := i.Find(t.Context(), func(string) bool { return true })
	if err != nil || l.Removable() {
		t.Errorf("%v, %v", l.List(), err)
	}
}
