package probe

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"golang.org/x/sys/unix"
)

func TestParseShimCmdline(t *testing.T) {
	for text, want := range map[string]string{
		"/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/x\x00": "abc",
		"shim\x00-id=abc\x00": "abc",
		"shim\x00-id":         "",
		"-id\x00abc":          "",
		"":                    "",
	} {
		if got := parseShimCmdline([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Of a plugin's environment only what it was asked for is kept.
func TestParsePlugin(t *testing.T) {
	for text, want := range map[string]CNI{
		"PATH=/bin\x00CNI_COMMAND=DEL\x00CNI_ARGS=K8S_POD_NAME=p\x00CNI_CONTAINERID=c0ffee\x00":          {Command: "DEL", ContainerID: "c0ffee"},
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_UID=u1;X=K8S_POD_UID=u2\x00CNI_COMMAND=ADD\x00": {Command: "ADD", PodUID: "u1"},
		"CNI_ARGS=K8S_POD_UID=" + strings.Repeat("u", maxID+1) + "\x00XCNI_ARGS=K8S_POD_UID=u\x00":       {},
		"CNI_ARGS=XK8S_POD_UID=u;K8S_POD_UID\x00":                                                        {},
		"CNI_COMMAND=":                    {},
		"XCNI_COMMAND=DEL\x00CNI_COMMAND": {},
		"CNI_COMMAND=DEL\x00CNI_CONTAINERID=" + strings.Repeat("c", maxID+1): {Command: "DEL"},
		"": {},
	} {
		if got := parsePlugin([]byte(text)); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestParseOutput(t *testing.T) {
	const dir = "/run/containerd/io.containerd.grpc.v1.cri/containers/c1/io/3011/"
	for text, want := range map[string][2]string{
		dir + "c1-stdout": {"c1"}, dir + "c1-stderr": {"c1"}, dir + "c1-stderr (deleted)": {"c1"},
		dir + "e1-stdout": {"", "c1"}, dir + "e1-stderr (deleted)": {"", "c1"}, "/x/c1-stdout": {"c1"},
		dir + "c1-stdin": {}, dir + "stdout": {}, "/stdout": {}, "pipe:[5973618]": {}, "": {},
	} {
		if id, executed := parseOutput(text); [2]string{id, executed} != want {
			t.Errorf("%q: %q and %q, want %q", text, id, executed, want)
		}
	}
}

func FuzzMapsAndCmdline(f *testing.F) {
	kerneltest.Fuzz(f, []string{"1-2 rw-s 0 07:01 12 /x\n", "shim\x00-id\x00x"}, func(b []byte) {
		parseMaps(b)
		parseShimCmdline(b)
		parsePlugin(b)
		inodeOfLink(string(b), "pid")
		parseOutput(string(b))
	})
}

func TestPIDReuse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes namespaces")
	}
	cmd := exec.Command("/proc/self/exe", "scene-pids")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "old true true true\nnew true true\n" {
		t.Errorf("a probe looks at another task with the same number: %q, %v", out, err)
	}
}

// Of a runtime's arguments only what it was told to do, and about which container, is kept.
func TestParseCommand(t *testing.T) {
	id := strings.Repeat("0f", 32)
	options := "--root /run/containerd/runc/k8s.io --log /run/x/log.json --log-format json --systemd-cgroup "
	for text, want := range map[string]CommandLine{
		"runc " + options + "kill " + id + " 9":                                            {Is: true, Runtime: "runc", Command: "kill", ContainerID: id},
		"/usr/sbin/crun " + options + "delete --force " + id:                               {Is: true, Runtime: "crun", Command: "delete", ContainerID: id},
		"/bin/sh /usr/local/sbin/runc " + options + "kill --all " + id + " 15":             {Is: true, Runtime: "runc", Command: "kill", ContainerID: id},
		"/usr/bin/env bash /opt/mine " + options + "start " + id:                           {Is: true, Command: "start", ContainerID: id},
		"runc --root kill --log x --rootless=true state " + id:                             {Is: true, Runtime: "runc", Command: "state", ContainerID: id},
		"runc " + options + "exec --process /tmp/runc-process1 --detach " + id + " secret": {Is: true, Runtime: "runc", Command: "exec", ContainerID: id},
		"runc " + options + "poweroff " + id:                                               {Is: true, Runtime: "runc"},
		"runc " + options + "kill " + strings.ToUpper(id):                                  {Is: true, Runtime: "runc", Command: "kill"},
		"runc kill " + id: {},
		"runc --root":     {Is: true, Runtime: "runc"},
		"--root /x kill":  {},
		"/usr/local/bin/containerd-shim-runc-v2 -namespace k8s.io -id " + id: {Shim: true},
		"": {},
	} {
		if got := parseCommand([]byte(strings.ReplaceAll(text, " ", "\x00") + "\x00")); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
