package meta

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"gopherlog/cluster/rpc"
)

// propertiesFormat is the first line of meta.properties without its version.
const propertiesFormat = "format=gopherlog "

// propertiesVersion is the version that this program writes, and the newest that it reads.
const propertiesVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// properties is the content of meta.properties: key=value lines that a person can read, closed by a checksum over all before it.
type properties struct {
	node        NodeID
	incarnation uint64
	cluster     string
	founders    []rpc.ServerID
}

func (p *properties) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d\n", propertiesFormat, propertiesVersion)
	fmt.Fprintf(&b, "node.id=%d\nincarnation=%016x\n", p.node, p.incarnation)
	if p.cluster != "" {
		fmt.Fprintf(&b, "cluster.id=%s\nfounders=%s\n", p.cluster, strings.Join(serversToPB(p.founders), ","))
	}
	fmt.Fprintf(&b, "checksum=%08x\n", crc32.Checksum([]byte(b.String()), castagnoli))
	return []byte(b.String())
}

// parseProperties never panics, whatever the bytes. The version is looked at before the checksum: a newer format may end otherwise.
func parseProperties(raw []byte) (*properties, error) {
	text := string(raw)
	first, _, _ := strings.Cut(text, "\n")
	version, ours := strings.CutPrefix(first, propertiesFormat)
	if !ours {
		return nil, errors.New("not written by GopherLog: this data directory belongs to another program")
	}
	if v, err := strconv.Atoi(version); err != nil || v != propertiesVersion {
		return nil, fmt.Errorf("format version %s, this program knows version %d only: run the version that wrote it", version, propertiesVersion)
	}
	body, sum, ok := strings.Cut(text, "checksum=")
	if want := fmt.Sprintf("%08x\n", crc32.Checksum([]byte(body), castagnoli)); !ok || sum != want {
		return nil, errors.New("damaged: the checksum does not match; restore the file, or move the whole data directory away to let this node join anew")
	}
	return parseLines(body)
}

func parseLines(body string) (*properties, error) {
	p := &properties{}
	var errs []error
	for n, line := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		key, value, _ := strings.Cut(line, "=")
		if err := p.set(key, value); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n+1, err))
		}
	}
	if p.incarnation == 0 {
		errs = append(errs, errors.New("no incarnation"))
	}
	return p, errors.Join(errs...)
}

func (p *properties) set(key, value string) error {
	switch key {
	case "format":
	case "node.id":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return fmt.Errorf("node.id=%s is no node id", value)
		}
		p.node = NodeID(n)
	case "incarnation":
		n, err := strconv.ParseUint(value, 16, 64)
		if err != nil {
			return fmt.Errorf("incarnation=%s is no incarnation", value)
		}
		p.incarnation = n
	case "cluster.id":
		p.cluster = value
	case "founders":
		for s := range strings.SplitSeq(value, ",") {
			p.founders = append(p.founders, rpc.ServerID(s))
		}
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return nil
}
