package main

import (
	"strings"
	"testing"

	"gopherlog/bench/check"
	"gopherlog/bench/result"
	"gopherlog/bench/suite"
)

func TestExitThatMeansUnusableSaysWhy(t *testing.T) {
	sound, late := result.Trial{}, result.Trial{Invalid: []string{"late"}}
	for want, r := range map[string]result.Results{
		"no trial was run":    {Verdict: check.Inconclusive},
		"could not be judged": {Verdict: check.Inconclusive, Trials: []result.Trial{sound}},
		"every trial was set": {Verdict: check.Pass, Trials: []result.Trial{late}},
		"was left undecided":  {Verdict: check.Pass, Trials: []result.Trial{sound, late}},
	} {
		if got := exitWord(suite.ExitUnusable, r); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := exitWord(suite.ExitViolation, result.Results{}); got != "a delivery guarantee was violated" {
		t.Error(got)
	}
}
