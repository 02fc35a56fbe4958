package proc

import "bytes"

// maxFrames bounds what is kept of a kernel stack. What a task waits for stands
// at its inner end.
const maxFrames = 16

// parseStack gives the functions of a kernel stack, innermost first. A line is
// "[<0>] ext4_page_mkwrite+0x3ea/0x5b0 [ext4]": the address is hidden by the
// kernel, the offset and the module say nothing to a reader of a diagnosis.
func parseStack(b []byte) []string {
	var out []string
	for line := range bytes.Lines(b) {
		_, fn, ok := bytes.Cut(bytes.TrimSpace(line), []byte("] "))
		if !ok {
			continue
		}
		if i := bytes.IndexAny(fn, "+ "); i >= 0 {
			fn = fn[:i]
		}
		if len(fn) == 0 || fn[0] == '0' {
			continue
		}
		if out = append(out, printable(fn)); len(out) == maxFrames {
			break
		}
	}
	return out
}
