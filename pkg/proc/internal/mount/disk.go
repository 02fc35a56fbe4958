package mount

import (
	"bytes"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// AskDisk fills in what the kernel counts of the block device below a mount, and
// below the one that carries its data. What cannot be told stays unknown: Btrfs, for
// one, gives its mounts numbers of their own.
func (v *View) AskDisk(e *evidence.Mount) {
	if v.Blocks == "" {
		return
	}
	for ; e != nil; e = e.Backing {
		if major, _, _ := strings.Cut(e.Device, ":"); major == "0" {
			continue
		}
		if d, err := readDisk(v.Blocks, e.Device); err == nil {
			e.Disk = d
		}
	}
}

// readDisk reads the files of a block device below /sys/dev/block, where a device is
// named by its number.
func readDisk(dir, device string) (*evidence.Disk, error) {
	major, minor, _ := strings.Cut(device, ":")
	for _, n := range []string{major, minor} {
		if _, err := strconv.ParseUint(n, 10, 32); err != nil {
			return nil, err
		}
	}
	dir = filepath.Join(dir, device)
	b, err := kernfile.Read(dir, kernfile.BlockStat)
	if err != nil {
		return nil, err
	}
	d, err := parseBlockStat(b)
	if err != nil {
		return nil, err
	}
	// Only devices of the device mapper have these.
	if b, err := kernfile.Read(dir, kernfile.DMSuspended); err == nil {
		d.Suspended = string(bytes.TrimSpace(b)) == "1"
	}
	if b, err := kernfile.Read(dir, kernfile.DMName); err == nil {
		d.Mapper = kernfile.Printable(bytes.TrimSpace(b))
	}
	d.Read = time.Now()
	return d, nil
}

var errBlockStat = errors.New("a stat file of a block device of unknown form")

// parseBlockStat parses the numbers of a block device (Documentation/block/stat.rst).
// The requests that have ended are the first ones of reads, writes, discards (since
// Linux 4.18) and flushes (5.5).
func parseBlockStat(b []byte) (*evidence.Disk, error) {
	n := numbers(bytes.Fields(b))
	if len(n) < 11 {
		return nil, errBlockStat
	}
	d := new(evidence.Disk)
	for _, i := range []int{0, 4, 11, 15} {
		if i < len(n) {
			d.Completed += uint64(max(n[i], 0))
		}
	}
	d.InFlight = uint64(max(n[8], 0))
	return d, nil
}
