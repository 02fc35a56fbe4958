package cgroup

import (
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

// A group is full when it, or one above it, has as many tasks as it may have. Groups of pods are not
// looked at.
func TestFull(t *testing.T) {
	const group, unit = "/system.slice/containerd.service/x", "/system.slice/containerd.service"
	under := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid1, "-", "_") + ".slice"
	for name, test := range map[string]struct {
		path  string
		files map[string]string // of the groups
		want  string            // the path of the full one
		fails bool
	}{
		"not full":       {group, map[string]string{group + "/pids.current": "11", group + "/pids.max": "12"}, "", false},
		"full":           {group, map[string]string{group + "/pids.current": "12", group + "/pids.max": "12"}, group, false},
		"more than full": {group, map[string]string{group + "/pids.current": "15", group + "/pids.max": "12"}, group, false},
		"may hold none":  {group, map[string]string{group + "/pids.current": "15", group + "/pids.max": "0"}, group, false},
		"no limit":       {group, map[string]string{group + "/pids.current": "15", group + "/pids.max": "max"}, "", false},
		"above": {group, map[string]string{unit + "/pids.current": "512", unit + "/pids.max": "512", group + "/pids.current": "1",
			group + "/pids.max": "max"}, unit, false},
		"both": {group, map[string]string{unit + "/pids.current": "512", unit + "/pids.max": "512", group + "/pids.current": "2", group + "/pids.max": "2"},
			group, false},
		"beyond a namespace": {"/../.." + group, map[string]string{unit + "/pids.current": "512", unit + "/pids.max": "512"}, unit, false},
		"removed":            {group + " (deleted)", map[string]string{unit + "/pids.current": "1", unit + "/pids.max": "512"}, "", false},
		"the root":           {"/", map[string]string{"/pids.current": "5", "/pids.max": "5"}, "", false},
		"not there":          {group, nil, "", false},
		"no number":          {group, map[string]string{group + "/pids.current": "x", group + "/pids.max": "12"}, "", false},
		"of a pod": {under + "/x", map[string]string{under + "/pids.current": "5", under + "/pids.max": "5",
			under + "/x/pids.current": "5", under + "/x/pids.max": "5"}, "", false},
		"of all pods":         {under + "/x", map[string]string{"/kubepods.slice/pids.current": "5", "/kubepods.slice/pids.max": "5"}, "/kubepods.slice", false},
		"is somebody else's":  {group, map[string]string{group + "/pids.current": "12", group + "/pids.max": "12", group + "/cgroup.procs": "7\n500\n"}, "", true},
		"processes not there": {group, map[string]string{group + "/pids.current": "12", group + "/pids.max": "12", group + "/cgroup.procs": ""}, "", true},
	} {
		for version, hierarchy := range []string{"", "pids"} {
			t.Run(name+" "+hierarchy, func(t *testing.T) {
				root := t.TempDir()
				files := map[string]string{hierarchy + "/cgroup.procs": "1\n", "cgroup.controllers": "pids"}
				line := "0::" + test.path + "\n"
				if hierarchy != "" {
					delete(files, "cgroup.controllers")
					line = "12:name=systemd:/other\n3:cpu,cpuacct:/other\n2:pids:" + test.path + "\n0::/\n"
				}
				clean := ownPath([]byte(line), 2-version, "pids")
				files[hierarchy+clean+"/cgroup.procs"] = "1\n50\n"
				for file, text := range test.files {
					files[hierarchy+file] = text + "\n"
				}
				kerneltest.Tree(t, root, files)
				full, err := (&Tree{Root: root}).Full([]byte(line), 50)
				got := ""
				if full != nil {
					got = full.Path
				}
				if got != test.want || (err != nil) != test.fails {
					t.Errorf("%q, %v; want %q", got, err, test.want)
				}
			})
		}
	}
}
