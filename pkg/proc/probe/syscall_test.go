package probe

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
	"golang.org/x/sys/unix"
)

func TestParseSyscall(t *testing.T) {
	number := strconv.Itoa(unix.SYS_OPENAT)
	for _, tt := range []struct {
		text string
		want Call
	}{
		{"running\n", Call{}},
		{"-1 0x0 0x0\n", Call{}},
		{"-1 0x7ffc2c6b6658 0x7f243feed503\n", Call{Outside: true}},
		{number + " 0xffffff9c 0x7ffc2c6b6670 0x1 0x2 0x3 0x4 0x7ffc2c6b6658 0x7f243feed503\n",
			Call{Name: "openat", Args: [6]uint64{0xffffff9c, 0x7ffc2c6b6670, 1, 2, 3, 4}}},
		// A 32-bit program: its number 5 is another Call.
		{"5 0x1 0x2 0x3 0x4 0x5 0x6 0xffffd000 0xf7f00000\n", Call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
		// A worker of io_uring, made by somebody's io_uring_enter.
		{"426 0x3 0x1 0x1 0x1 0x0 0x8 0x0 0x0\n", Call{Args: [6]uint64{3, 1, 1, 1, 0, 8}}},
		{"9999 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc2c6b6658 0x1\n", Call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
		// Without a Call, but in kernel mode on the way out.
		{"-1 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc2c6b6658 0x1\n", Call{Args: [6]uint64{1, 2, 3, 4, 5, 6}}},
	} {
		got, err := parseSyscall([]byte(tt.text))
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q: %s", tt.text, d)
		}
	}
	for _, bad := range []string{"", "x", "1 2 3 4", "1 0xg 0x2"} {
		if _, err := parseSyscall([]byte(bad)); err == nil {
			t.Errorf("%q is a syscall", bad)
		}
	}
	for n, name := range map[int]string{unix.SYS_READ: "read", unix.SYS_CLOSE: "close", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait",
		unix.SYS_UMOUNT2: "umount2", unix.SYS_STATX: "statx", unix.SYS_EXECVE: "execve"} {
		if syscallNames[n] != name {
			t.Errorf("Call %d is %q, not %s", n, syscallNames[n], name)
		}
	}
}

func FuzzParseSyscall(f *testing.F) {
	kerneltest.Fuzz(f, []string{"running", "-1 0x1 0x2"}, func(b []byte) {
		c, _ := parseSyscall(b)
		Operands(c.Name)
	})
}
