package probe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMaps(t *testing.T) {
	const maps = `559c7f0a0000-559c7f0a1000 r--p 00000000 fe:00 1234                       /usr/bin/sleep
7f0c8e800000-7f0c8e801000 rw-s 00000000 07:01 12                         /data/a b
7f0c8e900000-7f0c8e901000 r--p 00000000 07:01 12                         /data/a b
7f0c8ea00000-7f0c8ea01000 rw-p 00000000 00:00 0
bad
`
	want := []Mapping{{"254:0", false}, {"7:1", true}}
	if d := cmp.Diff(want, parseMaps([]byte(maps))); d != "" {
		t.Error(d)
	}
}
