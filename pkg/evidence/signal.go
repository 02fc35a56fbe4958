package evidence

import (
	"fmt"
	"strconv"
	"strings"
)

// A Signal is a signal number, the same on amd64 and arm64 (signal(7)).
type Signal int

// The signals that rules name.
const (
	SIGHUP   Signal = 1
	SIGINT   Signal = 2
	SIGQUIT  Signal = 3
	SIGILL   Signal = 4
	SIGKILL  Signal = 9
	SIGUSR1  Signal = 10
	SIGSEGV  Signal = 11
	SIGUSR2  Signal = 12
	SIGTERM  Signal = 15
	SIGCHLD  Signal = 17
	SIGCONT  Signal = 18
	SIGSTOP  Signal = 19
	SIGURG   Signal = 23
	SIGWINCH Signal = 28
)

// Linux numbers signals alike on all machines that Kubernetes runs on.
var signalNames = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT",
	17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU",
	25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

const (
	sigRTMin = 34
	sigRTMax = 64
)

// String returns the signal's name, for example SIGTERM or SIGRTMIN+3.
func (s Signal) String() string {
	switch {
	case s > 0 && int(s) < len(signalNames):
		return "SIG" + signalNames[s]
	case s == sigRTMin:
		return "SIGRTMIN"
	case s > sigRTMin && s <= sigRTMax:
		return fmt.Sprintf("SIGRTMIN+%d", int(s)-sigRTMin)
	}
	return fmt.Sprintf("signal %d", int(s))
}

// ParseSignal parses a signal as it stands in a container image's STOPSIGNAL: a
// number, or a name with or without SIG in any case, RTMIN+n and RTMAX-n too.
func ParseSignal(text string) (Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > sigRTMax {
			return 0, fmt.Errorf("signal number %d is not in 1 to %d", n, sigRTMax)
		}
		return Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	for n, s := range signalNames {
		if s != "" && s == name {
			return Signal(n), nil
		}
	}
	for _, base := range []struct {
		name string
		n    int
	}{{"RTMIN", sigRTMin}, {"RTMAX", sigRTMax}} {
		rest, ok := strings.CutPrefix(name, base.name)
		if !ok {
			continue
		}
		off := 0
		if rest != "" {
			var err error
			if off, err = strconv.Atoi(rest); err != nil {
				break
			}
		}
		if n := base.n + off; n >= sigRTMin && n <= sigRTMax {
			return Signal(n), nil
		}
	}
	return 0, fmt.Errorf("no signal is called %q", text)
}

// A SignalSet is a set of signals as /proc/PID/status shows it: signal n is bit
// n-1.
type SignalSet uint64

// Has reports whether the signal is in the set.
func (s SignalSet) Has(sig Signal) bool {
	return sig > 0 && sig <= sigRTMax && s&(1<<(sig-1)) != 0
}

// MarshalText writes the set in hexadecimal, as the kernel does.
func (s SignalSet) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%x", uint64(s)), nil
}

// UnmarshalText reads what MarshalText and the kernel write.
func (s *SignalSet) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("signal set %q is not hexadecimal: %w", b, err)
	}
	*s = SignalSet(n)
	return nil
}
