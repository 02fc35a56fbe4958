package probe

import (
	"bytes"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// maxFrames bounds what is kept of a kernel stack. What a task waits for stands
// at its inner end.
const maxFrames = 16

// parseStack gives the functions of a kernel stack, innermost first. A line is
// "[<0>] ext4_page_mkwrite+0x3ea/0x5b0 [ext4]": the address is hidden by the
// kernel, the offset, the module and what the compiler appends to the name say
// nothing to a reader of a diagnosis.
func parseStack(b []byte) []string {
	var out []string
	for line := range bytes.Lines(b) {
		_, fn, ok := bytes.Cut(bytes.TrimSpace(line), []byte("] "))
		if !ok {
			continue
		}
		if i := bytes.IndexAny(fn, "+ "); i >= 0 {
			fn = fn[:i]
		}
		if len(fn) == 0 || fn[0] == '0' {
			continue
		}
		if out = append(out, function(fn)); len(out) == maxFrames {
			break
		}
	}
	return out
}

// appended is what compilers append to a symbol behind a dot, and before a number
// or a hash if need be: GCC to a function's clone, outlined part or alias
// (gcc/cgraphclones.cc, clone_function_name, and its callers), LLVM to a local
// function that LTO makes global (kernel/kallsyms.c, cleanup_symbol_name). All
// of them are code of the function named before it. A number alone is not among
// them: that tells apart functions of the same name.
var appended = []string{"isra", "constprop", "part", "cold", "lto_priv", "localalias", "llvm"}

// function gives a kernel function's name as it stands in the source, and as
// people look for it. One build of a kernel has do_sigtimedwait where another
// has do_sigtimedwait.isra.0. Other dots stay: a symbol may begin with one, and
// the name of a BPF program may have some.
func function(symbol []byte) string {
	for i, c := range symbol {
		if c != '.' || i == 0 {
			continue
		}
		word, _, _ := bytes.Cut(symbol[i+1:], []byte("."))
		if slices.Contains(appended, string(word)) {
			return kernfile.Printable(symbol[:i])
		}
	}
	return kernfile.Printable(symbol)
}
