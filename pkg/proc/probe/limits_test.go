package probe

import (
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseMaxOpen(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             unlimited            unlimited            processes \n"
	for text, want := range map[string]int64{
		head + "Max open files            1024                 524288               files     \n":            1024,
		head + "Max open files            unlimited            unlimited            files     \nMax x 3 3\n": 0,
		head + "Max open files            0                    0                    files     \n":            0,
		head + "Max open files \n": 0,
		head:                       0,
		"":                         0,
	} {
		if got := parseMaxOpen([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzLimits(f *testing.F) {
	kerneltest.Fuzz(f, []string{"Max open files            1024                 524288               files     \n"}, func(b []byte) {
		parseMaxOpen(b)
	})
}
