package log

import (
	"errors"
	"fmt"
)

// Tune changes SegmentBytes (0: the default) and SyncEach of an open log, from the next append on. Segments that are longer stay as
// they are. When it returns with syncEach, everything appended before is durable as well; appends wait meanwhile, for as long as what
// was written since the sync before them takes. The error is ErrClosed or ErrFailed, or says that segmentBytes is too large.
func (l *Log) Tune(segmentBytes int64, syncEach bool) error {
	if segmentBytes > maxRelative {
		return fmt.Errorf("log: segments of %d bytes, want at most %d", segmentBytes, maxRelative)
	}
	if segmentBytes <= 0 {
		segmentBytes = DefaultSegmentBytes
	}
	if syncEach {
		if err := l.Sync(); err != nil { // most of it, while appends go on
			return err
		}
	}
	if err := l.take(); err != nil {
		return err
	}
	defer l.give()
	if syncEach {
		if err := errors.Join(l.sidecar.Retire(), l.syncFiles()); err != nil {
			return err
		}
	}
	l.cfg.SegmentBytes, l.cfg.SyncEach = segmentBytes, syncEach
	return nil
}
