package main

import (
	"io"
	"strings"
	"testing"
)

// None of these gets as far as to look for a cluster.
func TestArgumentErrors(t *testing.T) {
	for line, want := range map[string]string{
		"up --node box":                    "--node box: give vm or native",
		"up --node vm --node vm,cgroup=v3": "give v1 or v2",
		"up more":                          `unknown command "more"`,
		"up --nodes 2":                     "unknown flag",
		"exec":                             "give a node and a command",
		"exec vm1":                         "give a node and a command",
		"load":                             "requires at least 1 arg",
		"stop":                             "accepts 1 arg",
		"image":                            "requires at least 1 arg",
		"image a:1":                        "would be empty",
		"image a:1 /x:y":                   "SRC:DST",
		"restart":                          `unknown command "restart"`,
		"stop etcd scheduler":              "accepts 1 arg",
		"status --everything":              "unknown flag",
		"image a:1 --packages":             "unknown flag",
		"image a:1 /x:/y --leave-out ../x": "give an absolute path",
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(line))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.Execute()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
