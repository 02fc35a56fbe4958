package signal

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A limit is the setting by which a program does not wait for its last connections, requests or tasks for longer than the
// grace period.
type limit struct {
	variant string
	// names are those of the program file or of the script. A version may follow: php-fpm8.2.
	names []string
	// signal is the stop signal on which it waits: on others it exits immediately.
	signal evidence.Signal
	// setting limits the time; text is what to do if that takes more than to set it, and first is that in short.
	setting, text, first string
}

// limits are the limits of common programs, as documented.
var limits = []limit{
	{"Nginx", []string{"nginx"}, evidence.SIGQUIT, "nginx's worker_shutdown_timeout", "", ""},
	{"HAProxy", []string{"haproxy"}, evidence.SIGUSR1, "HAProxy's hard-stop-after", "", ""},
	{"Httpd", []string{"httpd", "apache2"}, evidence.SIGWINCH, "Apache's GracefulShutdownTimeout", "", ""},
	{"PHPFPM", []string{"php-fpm"}, evidence.SIGQUIT, "PHP-FPM's process_control_timeout", "", ""},
	{"Gunicorn", []string{"gunicorn"}, evidence.SIGTERM, "gunicorn's --graceful-timeout (30 seconds by default)", "", ""},
	{"Uvicorn", []string{"uvicorn"}, evidence.SIGTERM, "uvicorn's --timeout-graceful-shutdown (none by default)", "", ""},
	{"Celery", []string{"celery"}, evidence.SIGTERM, "celery's worker_soft_shutdown_timeout", "Give Celery tasks a time limit below the grace period " +
		"(or from Celery 5.5 on, set both REMAP_SIGTERM=SIGQUIT and worker_soft_shutdown_timeout)", "give Celery tasks a time limit below the grace period"},
	{"Node", []string{"node", "nodejs"}, evidence.SIGTERM, "closeAllConnections() of Node.js", "Let it call closeAllConnections() in time " +
		"(server.close() of Node.js waits for open connections; WebSockets are not closed)",
		"in Node.js, call closeAllConnections() before the grace period ends"},
	{"Java", []string{"java"}, evidence.SIGTERM, "Spring Boot's spring.lifecycle.timeout-per-shutdown-phase (30 seconds by default)",
		"Give it a limit below the grace period (in Spring Boot spring.lifecycle.timeout-per-shutdown-phase, 30 seconds by default)",
		"limit Java's shutdown to less than the grace period (Spring Boot: timeout-per-shutdown-phase)"},
}

// ownLimits returns the wordings for how to limit a program's shutdown.
func ownLimits() []diagnose.Choice {
	out := make([]diagnose.Choice, 0, len(limits)+1)
	for _, l := range limits {
		out = append(out, diagnose.Choice{Variant: l.variant, Text: cmp.Or(l.text, "Set "+l.setting+" to less than the grace period")})
	}
	return append(out, diagnose.Choice{Text: "Limit its shutdown time"})
}

// firstLimits returns the same in short, for the first step.
func firstLimits() []diagnose.Choice {
	out := make([]diagnose.Choice, 0, len(limits))
	for _, l := range limits {
		setting, _, _ := strings.Cut(l.setting, " (")
		out = append(out, diagnose.Choice{Variant: l.variant, Text: cmp.Or(l.first, "set "+setting+" below the grace period")})
	}
	return out
}

// settings returns the names of these settings.
func settings() string {
	var out []string
	for _, l := range limits {
		out = append(out, l.setting)
	}
	return strings.Join(out, ", ")
}

// limitOf returns the variant of the limit for the process that has not exited: the one that the program runs, else the
// program itself. Which signal was forwarded to another program is not known.
func limitOf(fp, program fact.FirstProcess, last *evidence.Task) string {
	for _, l := range limits {
		if fp.Container.StopSignal == l.signal && l.isOf(program.Leader) {
			return l.variant // the process that it runs may be only a helper
		}
	}
	if last == nil || last.Comm == program.Leader.Comm {
		return ""
	}
	for _, l := range limits {
		if l.isOf(last) {
			return l.variant
		}
	}
	return ""
}

// isOf reports whether the process is one of the program. Of a script, comm is the script's name, to which
// setproctitle adds what the process does: gunicorn: master. To the name of a file a version may be added.
func (l *limit) isOf(t *evidence.Task) bool {
	return slices.ContainsFunc(l.names, func(name string) bool {
		return begins(t.Comm, name) || t.Probe != nil && begins(t.Probe.Exe, name)
	})
}

// begins reports whether a text is a name, or a name with a version or a colon behind it.
func begins(s, name string) bool {
	rest, ok := strings.CutPrefix(s, name)
	return ok && strings.TrimLeft(rest, ":0123456789") != rest || s == name
}
