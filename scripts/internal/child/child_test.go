package child

import (
	"strings"
	"testing"
)

func TestAChildTellsWhatItSaidAndSpentAndEndsWhenStopped(t *testing.T) {
	t.Setenv("GOPHERLOG_ADDR", "secret")
	p, err := Start("/bin/sh", []string{"OWN=yes"}, nil, "-c", `echo "own $OWN, inherited '$GOPHERLOG_ADDR'"; read line; echo over`)
	if err != nil {
		t.Skip("needs /bin/sh: ", err)
	}
	for !strings.Contains(p.Said(), "inherited") {
		select {
		case <-p.Gone():
			t.Fatalf("it ended: %s", p.Said())
		default:
		}
	}
	if got := p.Said(); got != "own yes, inherited ''" {
		t.Errorf("it said %q", got)
	}
	if _, err := p.Spent(); err != nil {
		t.Error(err)
	}
	if n, err := p.Resident(); err != nil || n <= 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := p.Descriptors(); err != nil || n < 3 {
		t.Errorf("%d descriptors, %v", n, err)
	}
	p.Stop()
	<-p.Gone()
	if _, err := p.Spent(); err == nil {
		t.Error("it runs on")
	}
}

func TestAddressesDiffer(t *testing.T) {
	all, err := Addrs(12)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range all {
		if seen[a] {
			t.Errorf("%s twice", a)
		}
		seen[a] = true
	}
}
