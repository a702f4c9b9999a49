package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/kv"
	"gopherlog/engine/log"
	"gopherlog/engine/vfs"
)

// Names in a data directory.
const (
	topicsDir      = "topics"
	storeDir       = "kv"
	lockFile       = "lock"
	propertiesFile = "meta.properties"
	deletedSuffix  = ".deleted"
)

// summary is what was found in all directories.
type summary struct {
	Topics     int       `json:"topics"`
	Partitions int       `json:"partitions"`
	Segments   int       `json:"segments"`
	Batches    int       `json:"batches"`
	Messages   int       `json:"messages"`
	Bytes      int64     `json:"bytes"`
	Problems   []problem `json:"problems"`
	Notes      []string  `json:"notes,omitempty"`

	topics map[string]bool
}

// problem is one place that is not as it should be.
type problem struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // -1: unknown
	Byte   int64  `json:"byte"`   // -1: the file as a whole
	What   string `json:"what"`
}

func (p problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Offset >= 0 {
		fmt.Fprintf(&b, ", offset %d", p.Offset)
	}
	if p.Byte >= 0 {
		fmt.Fprintf(&b, ", byte %d", p.Byte)
	}
	return b.String() + ": " + p.What
}

// errDamaged ends the program with exit code 1; what is wrong has been printed.
var errDamaged = errors.New("the data is damaged")

// Run checks all directories and prints the summary.
func (c *checkCmd) Run(out io.Writer) error {
	s := &summary{topics: map[string]bool{}, Problems: []problem{}}
	for _, dir := range c.Dirs {
		if err := s.directory(dir); err != nil {
			return err
		}
	}
	s.Topics = len(s.topics)
	if err := s.print(out, c.Output == "json"); err != nil {
		return err
	}
	if len(s.Problems) > 0 {
		return errDamaged
	}
	return nil
}

func (s *summary) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(s)
	}
	for _, p := range s.Problems {
		fmt.Fprintln(out, p)
	}
	for _, n := range s.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	fmt.Fprintf(out, "%d topics, %d segments, %d messages, %d bytes, %d problems\n", s.Topics, s.Segments, s.Messages, s.Bytes, len(s.Problems))
	verdict := "OK"
	if len(s.Problems) > 0 {
		verdict = "DAMAGED"
	}
	_, err := fmt.Fprintln(out, "on-disk data:", verdict)
	return err
}

// directory checks a node's directory, the nodes' directories in it, or one partition's.
func (s *summary) directory(dir string) error {
	names, err := listDir(dir)
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(names, propertiesFile), slices.Contains(names, topicsDir), slices.Contains(names, storeDir):
		return s.node(dir, names)
	case slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".log") && len(n) == 24 }):
		return s.partition(dir, false)
	}
	found := false
	for _, n := range names {
		sub := filepath.Join(dir, n)
		if ok, err := vfs.Exists(vfs.OS(), filepath.Join(sub, propertiesFile)); err == nil && ok {
			found = true
			if err := s.directory(sub); err != nil {
				return err
			}
		}
	}
	if !found {
		return cli.Environment(fmt.Errorf("%s is not a GopherLog data directory: it has no %s and no %s", dir, propertiesFile, topicsDir))
	}
	return nil
}

func listDir(dir string) ([]string, error) {
	names, err := vfs.OS().List(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, cli.Environment(fmt.Errorf("there is no directory %s", dir))
	case errors.Is(err, syscall.ENOTDIR):
		return nil, cli.Usage(fmt.Errorf("%s is a file: give a node's data directory; `mqvalidate dump FILE` prints one file of a partition", dir))
	case err != nil:
		return nil, cli.Environment(fmt.Errorf("cannot read %s: %w", dir, err))
	}
	slices.Sort(names)
	return names, nil
}

// node checks one node's directory.
func (s *summary) node(dir string, names []string) error {
	taken, unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	live := taken != ""
	if live {
		s.Notes = append(s.Notes, fmt.Sprintf("%s %s: its segments are checked, its store is not", taken, dir))
	} else {
		s.store(filepath.Join(dir, storeDir))
	}
	if slices.Contains(names, propertiesFile) {
		s.properties(filepath.Join(dir, propertiesFile))
	} else {
		s.add(problem{filepath.Join(dir, propertiesFile), -1, -1, "is missing"})
	}
	if err := s.control(filepath.Join(dir, controlDir)); err != nil {
		return err
	}
	if !slices.Contains(names, topicsDir) {
		return nil
	}
	partitions, err := listDir(filepath.Join(dir, topicsDir))
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if strings.HasSuffix(p, deletedSuffix) {
			continue
		}
		if err := s.partition(filepath.Join(dir, topicsDir, p), live); err != nil {
			return err
		}
	}
	return nil
}

// lock takes the directory from servers, or says in the beginning of a sentence why it could not.
func lock(dir string) (taken string, unlock func(), err error) {
	unlock = func() {}
	path := filepath.Join(dir, lockFile)
	if there, err := vfs.Exists(vfs.OS(), path); err != nil || !there {
		return "", unlock, nil // no server has been here, or none of this version
	}
	l, err := vfs.OS().Lock(path)
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return "a server is using", unlock, nil
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return "a server may be using, for want of permission to lock it,", unlock, nil
	case err != nil:
		return "", unlock, cli.Environment(fmt.Errorf("cannot lock %s: %w", path, err))
	}
	return "", func() { _ = l.Close() }, nil // nothing was written through it
}

func (s *summary) add(p problem) { s.Problems = append(s.Problems, p) }

// liveTries is how often a partition of a running server is read again before what was found counts: an append may have
// been seen half-way.
const liveTries = 3

func (s *summary) partition(dir string, live bool) error {
	var r log.Report
	for try := 1; ; try++ {
		var err error
		if r, err = log.Verify(vfs.OS(), dir); err != nil {
			if live && errors.Is(err, os.ErrNotExist) {
				return nil // deleted meanwhile
			}
			return cli.Environment(fmt.Errorf("cannot read %s: %w", dir, err))
		}
		if len(r.Problems) == 0 || !live || try == liveTries {
			break
		}
	}
	s.Partitions++
	s.Segments += r.Segments
	s.Batches += r.Batches
	s.Messages += r.Messages
	s.Bytes += r.Bytes
	s.topics[topicOf(filepath.Base(dir))] = true
	for _, p := range r.Problems {
		file := p.File
		if !filepath.IsAbs(file) && filepath.Base(file) == file {
			file = filepath.Join(dir, file)
		}
		s.add(problem{file, p.Offset, p.Byte, p.What})
	}
	return nil
}

// topicOf is the topic of a partition's directory, NAME-NUMBER.
func topicOf(dir string) string {
	if i := strings.LastIndexByte(dir, '-'); i > 0 {
		return dir[:i]
	}
	return dir
}

// store reads every key and value of the key-value store.
func (s *summary) store(dir string) {
	if there, err := vfs.Exists(vfs.OS(), dir); err == nil && !there {
		s.add(problem{dir, -1, -1, "is missing"})
		return
	}
	db, err := kv.Open(kv.Config{Dir: dir, ReadOnly: true})
	if err == nil {
		_, err = db.Verify()
		err = errors.Join(err, db.Close())
	}
	switch {
	case errors.Is(err, kv.ErrLocked), errors.Is(err, os.ErrPermission):
		s.Notes = append(s.Notes, fmt.Sprintf("the store %s cannot be opened and is not checked: %v", dir, err))
	case err != nil:
		s.add(problem{dir, -1, -1, strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
}

// properties checks the node's identity: its first line and the checksum that closes it.
func (s *summary) properties(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		s.add(problem{path, -1, -1, err.Error()})
		return
	}
	text := string(raw)
	body, sum, ok := strings.Cut(text, "checksum=")
	want := fmt.Sprintf("%08x\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)))
	switch {
	case !strings.HasPrefix(text, "format=gopherlog "):
		s.add(problem{path, -1, 0, "was not written by GopherLog"})
	case !strings.HasPrefix(text, "format=gopherlog 1\n"):
		version, _, _ := strings.Cut(strings.TrimPrefix(text, "format=gopherlog "), "\n")
		s.Notes = append(s.Notes, fmt.Sprintf("%s has format version %s, this program knows 1", path, version))
	case !ok || sum != want:
		s.add(problem{path, -1, int64(len(body)), "the checksum does not fit the lines before it"})
	}
}
