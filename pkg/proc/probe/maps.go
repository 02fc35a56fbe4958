package probe

import (
	"bytes"
	"strconv"
)

// A Mapping is a device of which files are mapped into a process.
type Mapping struct {
	Device string `json:"device"` // major:minor, as in mountinfo
	// Shared says that a Mapping of it is shared and writable: only a store to
	// such a page makes the file system prepare for a write.
	Shared bool `json:"shared,omitempty"`
}

// parseMaps gives the devices of the files in /proc/PID/maps, each once. Names
// of files are not looked at. A line is
//
//	7f0c8e800000-7f0c8e801000 rw-s 00000000 07:01 12      /data/file
func parseMaps(b []byte) []Mapping {
	var out []Mapping
	for line := range bytes.Lines(b) {
		f := bytes.SplitN(line, []byte(" "), 5)
		if len(f) < 5 || len(f[1]) < 4 {
			continue
		}
		major, minor, ok := bytes.Cut(f[3], []byte(":"))
		if !ok {
			continue
		}
		ma, err1 := strconv.ParseUint(string(major), 16, 32)
		mi, err2 := strconv.ParseUint(string(minor), 16, 32)
		if err1 != nil || err2 != nil || ma == 0 && mi == 0 {
			continue
		}
		m := Mapping{
			Device: strconv.FormatUint(ma, 10) + ":" + strconv.FormatUint(mi, 10),
			Shared: f[1][1] == 'w' && f[1][3] == 's',
		}
		known := false
		for i := range out {
			if out[i].Device == m.Device {
				out[i].Shared = out[i].Shared || m.Shared
				known = true
			}
		}
		if !known {
			out = append(out, m)
		}
	}
	return out
}
