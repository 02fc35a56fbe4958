package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

func TestParseHierarchies(t *testing.T) {
	const hybrid = `25 1 0:22 / / rw,relatime - ext4 /dev/vda rw
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:9 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory,release_agent=/x
35 30 0:30 / /mnt/again rw,nosuid - cgroup cgroup rw,memory
`
	for name, test := range map[string]struct{ mountinfo, names, dirs string }{
		"hybrid": {hybrid, "name=systemd cpu,cpuacct memory",
			"/sys/fs/cgroup/unified /sys/fs/cgroup/systemd /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup/memory"},
		"v2":    {"31 30 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n", "v2", "/sys/fs/cgroup"},
		"none":  {"25 1 0:22 / / rw,relatime - ext4 /dev/vda rw\n", "", ""},
		"named": {"32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n", "", "/sys/fs/cgroup/systemd"},
	} {
		all := parseHierarchies(test.mountinfo)
		var dirs []string
		for _, h := range all {
			dirs = append(dirs, h.dir)
		}
		if got := hierarchyNames(all); got != test.names {
			t.Errorf("%s: the node mounts %q, want %q", name, got, test.names)
		}
		if got := strings.Join(dirs, " "); got != test.dirs {
			t.Errorf("%s: found %q, want %q", name, got, test.dirs)
		}
	}
}

func TestClustersHaveTheirOwnCgroups(t *testing.T) {
	// The same checkout in two caches.
	a, b := groupName(state.Dir{Path: "/a/clusters/01234567"}), groupName(state.Dir{Path: "/b/clusters/01234567"})
	if a == b || !strings.HasPrefix(a, "nodeagent-") {
		t.Errorf("the cgroups of two clusters are %s and %s", a, b)
	}
}

// TestEndOfCgroups lets processes of a cgroup's namespace make groups of their own,
// stop and freeze, and looks whether anything of them outlives the end of the node.
func TestEndOfCgroups(t *testing.T) {
	all, err := hierarchies()
	if os.Geteuid() != 0 || err != nil {
		t.Skipf("making cgroups takes root and their controllers: %v", err)
	}
	d := state.Dir{Path: t.TempDir()}
	groups := nodeGroups(d, all, "try")
	if err := makeGroups(d, all, "try"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if err := removeNative(context.Background(), d, "try"); err != nil {
			t.Error(err)
		}
	})
	// What native.sh and native-init do, one after the other.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-euc", `
mount --make-rprivate /
for dir in $CGROUPS; do echo 0 > "$dir/cgroup.procs"; done
exec unshare --cgroup /bin/sh -euc '
	dir=/sys/fs/cgroup
	umount -R $dir
	case $HIERARCHIES in
	v2)
		mount -t cgroup2 cgroup2 $dir
		mkdir $dir/init
		echo 0 > $dir/init/cgroup.procs
		for controller in $(cat $dir/cgroup.controllers); do echo "+$controller" > $dir/cgroup.subtree_control; done
		mkdir $dir/pod
		grep -qw memory $dir/pod/cgroup.controllers
		file=cgroup.freeze value=1 ;;
	*)
		mount -t tmpfs tmpfs $dir
		mount -t cgroup -o freezer cgroup $dir
		mkdir $dir/pod
		file=freezer.state value=FROZEN ;;
	esac
	test "$(ls -d $dir/*/ | wc -l)" -le 2
	sh -c "kill -STOP \$\$; sleep 1000" &
	sh -c "echo 0 > $dir/pod/cgroup.procs; while :; do sleep 0.1; done" &
	until grep -q . $dir/pod/cgroup.procs; do sleep 0.1; done
	sleep 0.3
	echo $value > $dir/pod/$file
	echo ready
	sleep 1000'`)
	cmd.Env = append(os.Environ(), "CGROUPS="+strings.Join(groups, " "), "HIERARCHIES="+hierarchyNames(all))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: nativeNamespace}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var line string
	if _, err := fmt.Fscanln(out, &line); err != nil || line != "ready" {
		t.Fatalf("the node's first process says %q, %v", line, err)
	}
	if got := Natives(d); !slices.Equal(got, []string{"try"}) {
		t.Errorf("Natives = %v, want try", got)
	}
	// What they wait for starts after they have said that they are ready.
	for got := processesIn(groups); len(got) < 4; got = processesIn(groups) {
		if ctx.Err() != nil {
			t.Fatalf("found the processes %v, want the first one, two below it and what they wait for", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := removeNative(ctx, d, "try"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, dir := range groups {
		if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", filepath.Dir(dir), err)
		}
	}
}
