package probe

import (
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseStat(t *testing.T) {
	for file, want := range map[string]stat{
		"stat_odd_comm": {Group: 8684, Flags: 4194368, Start: 291972},
		"stat_zombie":   {Group: 8684, Flags: 4195660, Start: 291972},
	} {
		got, err := parseStat(kerneltest.File(t, file))
		if err != nil || got.Start != want.Start || got.Group != want.Group {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
		if exiting := got.Flags&evidence.PFExiting != 0; exiting != (file == "stat_zombie") {
			t.Errorf("%s: exiting %v", file, exiting)
		}
	}
	if got, err := parseStat([]byte("1 (x) S 1 1 1 1 1 0 300 40 50 6 1 1 1 1 20 0 1 0 7")); err != nil || got.Reaped != 46 || got.Start != 7 {
		t.Errorf("%+v, %v: of the children's page faults", got, err)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2", "1 (x) S 1 1 1 1 1 x 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is a stat", bad)
		}
	}
}

func TestStartedAt(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 1234567, time.UTC)
	for _, tt := range []struct {
		start uint64
		boot  time.Duration
		want  time.Time
	}{
		{0, time.Hour, time.Time{}}, // not read
		{100, time.Hour, time.Date(2026, 7, 1, 11, 0, 1, 0, time.UTC)},
		{360_000, time.Hour, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
		{360_000, time.Hour + 4*time.Millisecond, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
		{360_050, time.Hour, time.Time{}}, // later than now
		{1 << 63, time.Hour, time.Time{}},
	} {
		if got := startedAt(tt.start, now, tt.boot); !got.Equal(tt.want) {
			t.Errorf("%d ticks, %v after boot: %v", tt.start, tt.boot, got)
		}
	}
}

func FuzzParseStat(f *testing.F) { kerneltest.Fuzz(f, nil, func(b []byte) { _, _ = parseStat(b) }) }
