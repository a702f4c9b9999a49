package scenario

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v4"
)

var errLater = errors.New("not supported yet")

// Problems is every mistake of one scenario.
type Problems []Problem

// A Problem is one mistake and where it stands.
type Problem struct {
	File         string
	Line, Column int // from 1; 0 where the mistake has no place in the file
	Path         string
	Message      string
	Hint         string // "did you mean ..."; may be empty
	Excerpt      string // the source line and a caret under it; may be empty
}

// Error lists every problem, each with its place and excerpt.
func (p Problems) Error() string {
	var b strings.Builder
	for i, x := range p {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(x.String())
	}
	return b.String()
}

// String is the problem on one line, and the excerpt on two more.
func (x Problem) String() string {
	var b strings.Builder
	b.WriteString(x.File)
	if x.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", x.Line, x.Column)
	}
	b.WriteString(": ")
	if x.Path != "" {
		b.WriteString(x.Path + ": ")
	}
	b.WriteString(x.Message)
	if x.Hint != "" {
		b.WriteString("; " + x.Hint)
	}
	if x.Excerpt != "" {
		b.WriteString("\n" + x.Excerpt)
	}
	return b.String()
}

// add appends a problem unless it is there already: cells of a sweep share most of theirs.
func (p *Problems) add(at place, path, message, hint string) {
	x := Problem{Path: path, Message: message, Hint: hint}
	if at.source != nil {
		x.File, x.Line, x.Column = at.source.name, at.line, at.column
		x.Excerpt = at.source.excerpt(at.line, at.column)
		if strings.HasPrefix(x.File, "-set ") {
			x.File, x.Line, x.Column = "-set", 0, 0
		}
	}
	if !slices.Contains(*p, x) {
		*p = append(*p, x)
	}
}

// addYAML takes over what the YAML library found.
func (p *Problems) addYAML(src *source, err error) {
	if strings.Contains(err.Error(), "no documents in stream") {
		p.add(place{src, 1, 1}, "", "the file is empty", "a scenario begins with version: 1 and a name")
		return
	}
	var one *yaml.LoadError
	if errors.As(err, &one) {
		line := max(one.Mark.Line, 1)
		p.add(place{src, line, max(one.Mark.Column, 1)}, "", "not YAML: "+one.Message, src.yamlHint(line, one.Message))
		return
	}
	p.add(place{src, 1, 1}, "", "not YAML: "+err.Error(), "")
}

// yamlHint says in words of this world what the YAML library's usually come from.
func (s *source) yamlHint(line int, message string) string {
	var text string
	if line <= len(s.lines) {
		text = s.lines[line-1]
	}
	switch {
	case strings.HasPrefix(strings.TrimLeft(text, " "), "\t"):
		return "indent with spaces, not with tabs"
	case strings.Contains(message, "mapping values are not allowed"):
		return "is this line indented too far, or a text with a colon in it not in quotes?"
	case strings.Contains(message, "did not find expected"):
		return "is a bracket, brace or quote still open, or a line indented differently from its neighbours?"
	}
	return ""
}

func (p Problems) sorted() Problems {
	sort.SliceStable(p, func(i, j int) bool {
		if p[i].File != p[j].File {
			return p[i].File < p[j].File
		}
		if p[i].Line != p[j].Line {
			return p[i].Line < p[j].Line
		}
		return p[i].Column < p[j].Column
	})
	return p
}

// excerpt is the line with a caret under the column.
func (s *source) excerpt(line, column int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	text := strings.TrimRight(s.lines[line-1], "\r")
	margin := fmt.Sprintf("%5d | ", line)
	var under strings.Builder
	for i, r := range text {
		if i >= column-1 {
			break
		}
		if r == '\t' {
			under.WriteByte('\t')
		} else {
			under.WriteByte(' ')
		}
	}
	return margin + text + "\n" + strings.Repeat(" ", len(margin)-2) + "| " + under.String() + "^"
}

// oneOf is empty where word is among words; else a hint that names the nearest, or all.
func oneOf(word string, words []string) string {
	if slices.Contains(words, word) {
		return ""
	}
	if near := nearest(word, words); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; use one of: " + strings.Join(words, ", ")
}

// nearest is the word within two edits (or a third of its length, but less than half of it) of word, or "".
func nearest(word string, words []string) string {
	best, at := "", 1+min(max(2, len(word)/3), len(word)/2)
	for _, w := range words {
		if d := edits(word, w); d < at {
			best, at = w, d
		}
	}
	return best
}

// edits is the Levenshtein distance, a swap of neighbours counting one.
func edits(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
