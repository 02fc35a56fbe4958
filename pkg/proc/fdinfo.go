package proc

import (
	"fmt"
	"strconv"

	"github.com/prometheus/procfs"
)

// readMountID gives the ID of the mount that a descriptor of a task was opened
// on. Unlike the link in fd, fdinfo can be read of a task in any state, and it
// names the mount even when no path does any more.
func readMountID(fs procfs.FS, pid, tid, fd int) (int, error) {
	p, err := fs.Thread(pid, tid)
	if err != nil {
		return 0, err
	}
	info, err := p.FDInfo(strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	id, err := strconv.Atoi(info.MntID)
	if err != nil {
		return 0, fmt.Errorf("mount of descriptor %d of task %d: %w", fd, tid, err)
	}
	return id, nil
}
