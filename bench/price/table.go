package price

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A table has its first column at the left, all others at the right.
type table struct {
	widths []int
	lines  []string
}

func (t *table) row(cells ...string) {
	var b strings.Builder
	for i, c := range cells {
		pad := strings.Repeat(" ", max(0, t.widths[i]-len([]rune(c))))
		switch {
		case i == 0:
			b.WriteString(c + pad)
		default:
			b.WriteString(" " + pad + c)
		}
	}
	t.lines = append(t.lines, strings.TrimRight(b.String(), " "))
}

// rule underlines what stands above.
func (t *table) rule() {
	n := 0
	for _, w := range t.widths {
		n += w + 1
	}
	t.lines = append(t.lines, strings.Repeat("─", n-1))
}

func (t *table) String() string { return strings.Join(t.lines, "\n") + "\n" }

// two keeps two digits that mean something, or three of large numbers.
func two(v float64) string {
	switch {
	case v >= 1000:
		return thousands(int64(v + 0.5))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// thousands groups digits by three.
func thousands(v int64) string {
	s := strconv.FormatInt(v, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Wrap breaks a paragraph at blanks. The first line begins with mark, the others with as many blanks.
func Wrap(mark, text string, width int) []string {
	indent := strings.Repeat(" ", len([]rune(mark)))
	var lines []string
	line, empty := mark, true
	for _, w := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(w)) > width {
			lines, line, empty = append(lines, line), indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+w, false
	}
	return append(lines, line)
}

// Span is a duration for people: 10m, not 10m0s.
func Span(d time.Duration) string {
	text := d.String()
	if cut, ok := strings.CutSuffix(text, "m0s"); ok {
		return cut + "m"
	}
	return text
}
