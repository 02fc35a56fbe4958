package signal

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A limit is how a program that waits for the last of its connections, requests or tasks is kept from doing so for
// longer than the grace period.
type limit struct {
	variant string
	// names are those of the program file, or of the script, and what they may begin with: php-fpm8.2.
	names []string
	// signal is the stop signal by which it waits: by others it ends immediately.
	signal evidence.Signal
	// setting is what keeps it to a time; text is what to do where that takes more than to set it.
	setting, text string
}

// limits are those of common programs, by their documentation.
var limits = []limit{
	{"Nginx", []string{"nginx"}, evidence.SIGQUIT, "nginx's worker_shutdown_timeout", ""},
	{"HAProxy", []string{"haproxy"}, evidence.SIGUSR1, "HAProxy's hard-stop-after", ""},
	{"Httpd", []string{"httpd", "apache2"}, evidence.SIGWINCH, "Apache's GracefulShutdownTimeout", ""},
	{"PHPFPM", []string{"php-fpm"}, evidence.SIGQUIT, "PHP-FPM's process_control_timeout", ""},
	{"Gunicorn", []string{"gunicorn"}, evidence.SIGTERM, "gunicorn's --graceful-timeout (30 seconds by default)", ""},
	{"Uvicorn", []string{"uvicorn"}, evidence.SIGTERM, "uvicorn's --timeout-graceful-shutdown (none by default)", ""},
	{"Celery", []string{"celery"}, evidence.SIGTERM, "celery's worker_soft_shutdown_timeout", "Give Celery tasks a time limit below the grace period " +
		"(or from Celery 5.5 on, set both REMAP_SIGTERM=SIGQUIT and worker_soft_shutdown_timeout)"},
	{"Node", []string{"node", "nodejs"}, evidence.SIGTERM, "closeAllConnections() of Node.js", "Let it call closeAllConnections() in time " +
		"(server.close() of Node.js waits for open connections; WebSockets are not closed)"},
	{"Java", []string{"java"}, evidence.SIGTERM, "Spring Boot's spring.lifecycle.timeout-per-shutdown-phase (30 seconds by default)",
		"Give it a limit below the grace period (in Spring Boot spring.lifecycle.timeout-per-shutdown-phase, 30 seconds by default)"},
}

// ownLimits are the words for how to give a program a limit for its shutdown.
func ownLimits() []diagnose.Choice {
	out := make([]diagnose.Choice, 0, len(limits)+1)
	for _, l := range limits {
		out = append(out, diagnose.Choice{Variant: l.variant, Text: cmp.Or(l.text, "Set "+l.setting+" to less than the grace period")})
	}
	return append(out, diagnose.Choice{Text: "Limit its shutdown time"})
}

// settings names what common programs have for it.
func settings() string {
	var out []string
	for _, l := range limits {
		out = append(out, l.setting)
	}
	return strings.Join(out, ", ")
}

// limitOf returns the variant of the limit for what has not ended: the process that the program runs, else the program
// itself. Which signal was passed on to another program is not known.
func limitOf(fp, program fact.FirstProcess, last *evidence.Task) string {
	for _, l := range limits {
		if fp.Container.StopSignal == l.signal && l.isOf(program.Leader) {
			return l.variant // what it runs may be no more than a helper
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

// begins reports whether a text is a name, or has a version or a colon behind it.
func begins(s, name string) bool {
	rest, ok := strings.CutPrefix(s, name)
	return ok && strings.TrimLeft(rest, ":0123456789") != rest || s == name
}
