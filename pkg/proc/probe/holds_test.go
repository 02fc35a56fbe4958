package probe

import "testing"

func TestLoopDevice(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/loop4": true, "/dev/loop4p1": true, "/dev/loop12p128": true, "/dev/loop": false, "/dev/loop-control": false, "/dev/loop4p": false,
		"/dev/loop4x1": false, "/dev/loop4/a": false, "/tmp/dev/loop4": false, "/dev/loop4 (deleted)": false,
	} {
		if loopDevice.MatchString(path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
}
