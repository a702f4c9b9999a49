package failpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind says what an armed point does.
type Kind uint8

const (
	Error Kind = iota + 1 // Hit returns Err, or ErrInjected
	Sleep                 // Hit returns after Action.Sleep
	Panic                 // Hit panics
	Exit                  // the process ends at once with ExitCode
	Block                 // Hit waits for Release or Disarm, then returns Err
	Do                    // Hit returns what Action.Do returns
)

var kindNames = map[Kind]string{Error: "error", Sleep: "sleep", Panic: "panic", Exit: "exit", Block: "block", Do: "do"}

// String returns the word that ParseAction reads.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Action is what happens at an armed point, and on which passes.
type Action struct {
	Kind        Kind
	Err         error         // for Error and Block
	Sleep       time.Duration // for Sleep
	Nth         int64         // fire only on this pass after arming, counted from 1; 0: on every pass
	Probability float64       // fire on this share of the passes; 0: on all
	Seed        int64         // of the draw for Probability
	Do          func() error  // for Do
}

func (a Action) validate() error {
	switch {
	case kindNames[a.Kind] == "":
		return fmt.Errorf("action kind %d does not exist", a.Kind)
	case a.Kind == Do && a.Do == nil:
		return errors.New("action do without a function")
	case a.Kind == Sleep && a.Sleep <= 0:
		return errors.New("action sleep needs a positive duration")
	case a.Nth < 0:
		return fmt.Errorf("nth is %d, want 0 or more", a.Nth)
	case a.Probability < 0 || a.Probability > 1:
		return fmt.Errorf("probability is %g, want 0 to 1", a.Probability)
	}
	return nil
}

// ParseAction reads the text form of an action, as the control port takes it:
// "error", "sleep 200ms", "panic", "exit", "block", followed by any of "nth=3", "probability=0.01", "seed=7".
func ParseAction(text string) (Action, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Action{}, errors.New("empty action: want error, sleep DURATION, panic, exit or block")
	}
	var a Action
	for k, name := range kindNames {
		if name == words[0] && k != Do {
			a.Kind = k
		}
	}
	if a.Kind == 0 {
		return Action{}, fmt.Errorf("action %q: want error, sleep DURATION, panic, exit or block", words[0])
	}
	for _, w := range words[1:] {
		if err := a.option(w); err != nil {
			return Action{}, fmt.Errorf("action %q: %w", text, err)
		}
	}
	return a, a.validate()
}

func (a *Action) option(word string) (err error) {
	key, value, ok := strings.Cut(word, "=")
	switch {
	case !ok && a.Kind == Sleep:
		a.Sleep, err = time.ParseDuration(word)
	case key == "nth":
		a.Nth, err = strconv.ParseInt(value, 10, 64)
	case key == "probability":
		a.Probability, err = strconv.ParseFloat(value, 64)
	case key == "seed":
		a.Seed, err = strconv.ParseInt(value, 10, 64)
	default:
		err = fmt.Errorf("unknown option %q: want nth=, probability= or seed=", word)
	}
	return err
}
