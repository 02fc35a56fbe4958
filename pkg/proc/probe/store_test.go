package probe

import (
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// ext4 says that it has stopped to write among its options only.
func TestHasStopped(t *testing.T) {
	const other = "26 1 7:1 / / rw,noatime shared:1 - ext4 /dev/loop1 rw,emergency_ro\n"
	for text, want := range map[string]bool{
		other + "27 26 7:0 / /a rw,noatime shared:1 - ext4 /dev/loop0 rw,nobarrier,emergency_ro\n": true,
		other + "27 26 7:0 / /a rw,noatime - ext4 /dev/loop0 rw,shutdown\n":                        true,
		other + "27 26 7:0 /emergency_ro /a rw,emergency_ro - ext4 /dev/loop0 rw\n":                false,
		other + "27 26 7:0 / /a rw\n": false,
		other + "27\n":                false,
		"":                            false,
	} {
		if got := hasStopped([]byte(text), 27); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func FuzzHasStopped(f *testing.F) {
	kerneltest.Fuzz(f, []string{"27 26 7:0 / /a rw - ext4 /dev/loop0 rw,shutdown\n"}, func(b []byte) { hasStopped(b, 27) })
}
