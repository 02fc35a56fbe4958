package node

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestEmulatorsGoAhead looks at what the kernel weighs: where it groups processes by session, that is the group.
func TestEmulatorsGoAhead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("less than nice 0 takes root")
	}
	script, want := "nice", "-4"
	if _, err := os.Stat("/proc/self/autogroup"); err == nil {
		script, want = "nice; cut -d' ' -f2- /proc/self/autogroup", "-4\nnice -4"
	}
	cmd := exec.Command(ahead[0], append(ahead[1:], "sh", "-c", script)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("an emulator runs at %q, %v; want %q", got, err, want)
	}
}
