package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Lock takes the lock of that path (a file with .lock added) and returns what
// gives it back. The kernel gives it back too when the process dies, so there are
// no stale locks. The file stays: removing it would let two processes lock two files.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	return lock(ctx, path, true)
}

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("another process is at work here")

// TryLock is Lock for those who do not want to wait.
func TryLock(path string) (unlock func(), err error) {
	return lock(context.Background(), path, false)
}

func lock(ctx context.Context, path string, wait bool) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		if !wait {
			f.Close()
			return nil, ErrLocked
		}
		if !told {
			fmt.Fprintf(os.Stderr, "    another process makes %s; waiting for it\n", filepath.Base(path))
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
