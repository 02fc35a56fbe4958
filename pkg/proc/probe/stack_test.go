package probe

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kerneltest"
)

func TestParseStackAndWchan(t *testing.T) {
	want := []string{"hrtimer_nanosleep", "common_nsleep_timens", "__x64_sys_clock_nanosleep", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"}
	if d := cmp.Diff(want, parseStack(kerneltest.File(t, "stack_odd_comm"))); d != "" {
		t.Error(d)
	}
	if got := parseStack([]byte("[<0>] ovl_write_iter+0x1/0x2 [overlay]\n[<0>] 0xffffffff81000000\n[<ffffffff8>] " +
		"vfs_write+0x1/0x2\n")); len(got) != 2 || got[0] != "ovl_write_iter" {
		t.Errorf("%q", got)
	}
	if got := parseStack(bytes.Repeat([]byte("[<0>] f+0x1/0x2\n"), 40)); len(got) != maxFrames {
		t.Errorf("%d frames", len(got))
	}
	for text, want := range map[string]string{"0": "", "": "", "do_wait": "do_wait", "do_wait\n": "do_wait"} {
		if got := parseWchan([]byte(text)); got != want {
			t.Errorf("wchan %q: %q", text, got)
		}
	}
}

// What the compiler appends to a function's name is not part of it.
func TestFunction(t *testing.T) {
	for symbol, want := range map[string]string{
		"do_sigtimedwait":                     "do_sigtimedwait",
		"do_sigtimedwait.isra.0":              "do_sigtimedwait",
		"__xfs_write_fault.constprop.0":       "__xfs_write_fault",
		"ptrace_stop.part.0":                  "ptrace_stop",
		"fuse_get_dev.part.13":                "fuse_get_dev",
		"do_exit.cold":                        "do_exit",
		"de_thread.lto_priv.0":                "de_thread",
		"down_read.localalias":                "down_read",
		"request_wait_answer.llvm.4086182673": "request_wait_answer",
		"request_wait_answer.llvm.9af3e1":     "request_wait_answer",
		"foo.isra.0.cold":                     "foo",
		"foo.constprop.0.isra.0":              "foo",
		"foo.part.0.constprop.0":              "foo",
		"foo.constprop.0.isra.0.cold":         "foo",
		"foo.lto_priv.0.cold":                 "foo",
		"foo.cold.1":                          "foo",

		// Whole names.
		"__x64_sys_rt_sigtimedwait":     "__x64_sys_rt_sigtimedwait",
		"__pfx_do_sigtimedwait.isra.0":  "__pfx_do_sigtimedwait",
		"__pfx_do_wait":                 "__pfx_do_wait",
		"cold":                          "cold",
		"part_stat_show":                "part_stat_show",
		".slowpath":                     ".slowpath",
		".cold":                         ".cold",
		"foo.":                          "foo.",
		"foo.colder":                    "foo.colder",
		"foo.llvm_x":                    "foo.llvm_x",
		"foo.7":                         "foo.7",
		"bpf_prog_6deef7357e7b4530_a.b": "bpf_prog_6deef7357e7b4530_a.b",
	} {
		if got := function([]byte(symbol)); got != want {
			t.Errorf("%s: %q instead of %q", symbol, got, want)
		}
		if got := parseWchan([]byte(symbol)); got != want {
			t.Errorf("wchan %s: %q instead of %q", symbol, got, want)
		}
		for _, line := range []string{"[<0>] %+0x156/0x1f0\n", "[<0>] %+0x156/0x1f0 [fuse]\n", "[<ffffffff810a2c60>] %+0x156/0x1f0\n"} {
			line = strings.Replace(line, "%", symbol, 1)
			if got := parseStack([]byte(line)); !slices.Equal(got, []string{want}) {
				t.Errorf("stack line %q: %q instead of %q", line, got, want)
			}
		}
	}
}

func FuzzParseStack(f *testing.F) {
	seeds := []string{"do_sigtimedwait.isra.0", "[<0>] foo.constprop.0.isra.0.cold+0x1/0x2 [fuse]\n[<0>] " +
		".slowpath+0x1/0x2\n", "foo.llvm.123456", ".cold.part.0", "a..cold", "a.b.lto_priv.0"}
	kerneltest.Fuzz(f, seeds, func(b []byte) {
		for _, fn := range append(parseStack(b), parseWchan(b)) {
			if !utf8.ValidString(fn) || function([]byte(fn)) != fn {
				panic(fn)
			}
			for _, word := range appended {
				if i := strings.Index(fn+".", "."+word+"."); i > 0 {
					panic(fn)
				}
			}
		}
		if len(b) > 0 && len(function(b)) == 0 {
			panic("nothing is left")
		}
	})
}
