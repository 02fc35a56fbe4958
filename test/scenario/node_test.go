package scenario

import "testing"

func TestSoftware(t *testing.T) {
	for _, tc := range []struct{ out, cgroup, runc string }{
		{"cgroup2fs\nrunc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n", "v2", "1.1.5"},
		{"tmpfs\nrunc version 1.4.3\nspec: 1.3.0\n", "v1", "1.4.3"},
	} {
		if cgroup, runc := software(tc.out); cgroup != tc.cgroup || runc != tc.runc {
			t.Errorf("%q: cgroup %s, runc %s, want %s and %s", tc.out, cgroup, runc, tc.cgroup, tc.runc)
		}
	}
}
