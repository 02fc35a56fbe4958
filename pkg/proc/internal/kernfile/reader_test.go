package kernfile

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseDirents(t *testing.T) {
	entry := func(size int, name string) []byte {
		b := make([]byte, size)
		binary.NativeEndian.PutUint16(b[16:], uint16(size))
		copy(b[19:], name)
		return b
	}
	var all []byte
	for _, name := range []string{".", "..", "1", "42", "self", "4x", "", "123456"} {
		all = append(all, entry(32, name)...)
	}
	want := []int{7, 1, 42, 123456}
	if d := cmp.Diff(want, parseDirents(all, []int{7})); d != "" {
		t.Error(d)
	}
	// An entry that is cut off, one without a length, one without an end.
	for _, bad := range [][]byte{entry(32, "8")[:31], make([]byte, 40), entry(20, "8")} {
		got := parseDirents(append(entry(24, "1"), bad...), nil)
		if len(got) == 0 || got[0] != 1 {
			t.Errorf("%q: %d", bad, got)
		}
	}
	r, err := Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.buf = make([]byte, 64) // a few entries at a time
	r.name = append(r.name[:0], '.')
	small, err := r.ids(nil)
	if err != nil || !slices.Contains(small, os.Getpid()) || !slices.IsSorted(small) {
		t.Errorf("the processes are %d, %v", small, err)
	}
}

func FuzzDirents(f *testing.F) {
	kerneltest.Fuzz(f, []string{strings.Repeat("\x00", 16) + "\x18\x00\x0412\x00\x00\x00"}, func(b []byte) {
		for _, n := range parseDirents(b, nil) {
			if n < 0 {
				panic(n)
			}
		}
	})
}
