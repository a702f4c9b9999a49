package partition

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"gopherlog/cluster/meta"
	"gopherlog/engine/vfs"
)

const (
	topicsDir     = "topics"
	metadataFile  = "partition.metadata"
	deletedSuffix = ".deleted"
	maxFileName   = 255 // bytes, of every file system that data is kept on
)

// dirName is the directory of a partition: Kafka's name for it.
func dirName(topic string, partition int32) string { return fmt.Sprintf("%s-%d", topic, partition) }

var errNoMetadata = errors.New("partition.metadata is missing")

// writeMetadata makes dir durably the directory of that topic's partition. The text is Kafka's.
func writeMetadata(fs vfs.FS, dir string, id meta.TopicID) error {
	text := "version: 0\ntopic_id: " + base64.RawURLEncoding.EncodeToString(id[:]) + "\n"
	return vfs.WriteFileAtomic(fs, fs.PathJoin(dir, metadataFile), []byte(text))
}

// readMetadata returns whose directory dir is; errNoMetadata if nobody's yet.
func readMetadata(fs vfs.FS, dir string) (id meta.TopicID, err error) {
	path := fs.PathJoin(dir, metadataFile)
	text, err := vfs.ReadFile(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return id, errNoMetadata
	}
	if err != nil {
		return id, fmt.Errorf("read %s: %w", path, err)
	}
	return parseMetadata(path, string(text))
}

func parseMetadata(path, text string) (id meta.TopicID, err error) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "version":
			if value != "0" {
				return id, fmt.Errorf("%s: version %q is not supported, want 0", path, value)
			}
		case "topic_id":
			raw, err := base64.RawURLEncoding.DecodeString(value)
			if err != nil || len(raw) != len(id) {
				return id, fmt.Errorf("%s: topic id %q is damaged", path, value)
			}
			return meta.TopicID(raw), nil
		}
	}
	return id, fmt.Errorf("%s: no topic id", path)
}

// setAside renames a directory that no longer belongs to a partition of this node, so that its name is free and a crash
// before removal leaves no doubt. It returns the new path. Of a long name only the end stays, which has the partition's number: with the id
// it is nobody else's.
func setAside(fs vfs.FS, dir string, id meta.TopicID) (string, error) {
	name, end := fs.PathBase(dir), "."+hex.EncodeToString(id[:])+deletedSuffix
	aside := fs.PathJoin(fs.PathDir(dir), name[max(0, len(name)+len(end)-maxFileName):]+end)
	if err := fs.RemoveAll(aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("remove %s: %w", aside, err)
	}
	if err := fs.Rename(dir, aside); err != nil {
		return "", fmt.Errorf("set aside %s: %w", dir, err)
	}
	return aside, vfs.SyncDir(fs, fs.PathDir(dir))
}

// isEmptyDir says whether dir has no files, as a crash between its creation and its first file leaves it.
func isEmptyDir(fs vfs.FS, dir string) (bool, error) {
	names, err := fs.List(dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".tmp") {
			return false, nil
		}
	}
	return true, nil
}
