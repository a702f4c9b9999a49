package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopherlog/cmd/internal/cli"
	"gopherlog/engine/vfs"
)

func TestDirectoryWithForeignFilesIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".hidden", "lost+found", "lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := refuseForeign(vfs.OS(), dir); err != nil {
		t.Errorf("an empty volume: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := openDataDir(vfs.OS(), dir, 1)
	if err == nil || cli.Code(err) != 3 || !strings.Contains(err.Error(), "thesis.txt") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.properties"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := refuseForeign(vfs.OS(), dir); err != nil {
		t.Errorf("the identity itself decides then: %v", err)
	}
}
