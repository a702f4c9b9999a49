package fault

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// insideVar marks a process that already runs in the namespace; its value is
// the command to run there.
const insideVar = "MQBENCH_NETNS"

const tableName = "mqbench"

// Enter makes sure that the harness runs in a user and network namespace of its
// own, where it may filter packets without being root. Outside, it runs itself
// again inside, waits, and never returns: it exits with the child's code. Where
// the kernel forbids such namespaces it returns the reason and changes nothing.
// Inside, it brings up the loopback device and returns the network.
func Enter() (Network, error) {
	switch os.Getenv(insideVar) {
	case "probe":
		if _, err := setUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "run":
		return setUp()
	}
	if err := Probe(); err != nil {
		return nil, err
	}
	os.Exit(runInside())
	return nil, nil
}

// HandleProbe must be called first in main: it answers the probe's child.
func HandleProbe() {
	if os.Getenv(insideVar) == "probe" {
		_, _ = Enter()
	}
}

func insideCommand(mode string, argv []string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Env = append(os.Environ(), insideVar+"="+mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// Probe says whether Enter would work here, without entering.
func Probe() error {
	cmd := insideCommand("probe", nil)
	var msg bytes.Buffer
	cmd.Stderr = &msg
	if err := cmd.Run(); err != nil {
		if text := bytes.TrimSpace(msg.Bytes()); len(text) > 0 {
			return fmt.Errorf("%s", text)
		}
		return fmt.Errorf("the kernel refuses a user and network namespace: %w", err)
	}
	return nil
}

// runInside runs this very command line in the namespace. Interrupts reach the
// child directly, being in the same process group, so they are ignored here.
func runInside() int {
	signal.Ignore(os.Interrupt)
	cmd := insideCommand("run", os.Args[1:])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "mqbench: enter the network namespace:", err)
		return 3
	}
	forward := make(chan os.Signal, 1)
	signal.Notify(forward, syscall.SIGTERM)
	go func() {
		for s := range forward {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		return 1
	}
	return 0
}

type nft struct{}

// setUp raises the loopback device and checks that a packet filter can be made.
func setUp() (Network, error) {
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("bring up the loopback device: %w", err)
	}
	n := nft{}
	if err := n.Cut([]string{"127.255.0.1"}, []string{"127.255.0.2"}); err != nil {
		return nil, fmt.Errorf("make a packet filter with nftables: %w", err)
	}
	return n, n.Mend()
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

func table() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
}

// Cut adds two counted drop rules for every pair. They stand on the input hook,
// so the sender believes that its packet left.
func (nft) Cut(a, b []string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(table())
	policy := nftables.ChainPolicyAccept
	chain := c.AddChain(&nftables.Chain{
		Name: "parted", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &policy,
	})
	for _, x := range a {
		for _, y := range b {
			for _, pair := range [][2]string{{x, y}, {y, x}} {
				rule, err := dropRule(pair[0], pair[1])
				if err != nil {
					return err
				}
				c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: rule})
			}
		}
	}
	return c.Flush()
}

// dropRule matches source and destination address in the IPv4 header.
func dropRule(from, to string) ([]expr.Any, error) {
	src, dst := net.ParseIP(from).To4(), net.ParseIP(to).To4()
	if src == nil || dst == nil {
		return nil, fmt.Errorf("%q or %q is no IPv4 address", from, to)
	}
	addrs := append(append([]byte(nil), src...), dst...)
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 8},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addrs},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}, nil
}

// Dropped sums the counters of all rules; 0 when there are none.
func (nft) Dropped() (uint64, error) {
	c, err := nftables.New()
	if err != nil {
		return 0, err
	}
	rules, err := c.GetRules(table(), &nftables.Chain{Name: "parted", Table: table()})
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, r := range rules {
		for _, e := range r.Exprs {
			if n, ok := e.(*expr.Counter); ok {
				sum += n.Packets
			}
		}
	}
	return sum, nil
}

// Mend deletes the whole table.
func (nft) Mend() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(table())
	return c.Flush()
}
