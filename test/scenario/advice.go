package scenario

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// An Advice is what the remedy of a cause says to do with an image or a manifest, and the scenario that does it to a real
// pod. docs/advice.md is written from the list of them.
type Advice struct {
	Cause string
	// Variant is that of the words, or of the cause's family; "" is for those without one.
	Variant string
	// Words is how the remedy names it: a key of Named.
	Words string
	// Shows is what the next deletion is like then, as the scenario sees it.
	Shows string
	// Scenario is its name. "" is for what no test tries; Shows says why.
	Scenario string
}

// What a row shows.
const (
	clean   = "clean: the program handles the signal"
	fast    = "fast, not clean: the signal ends the program immediately"
	trapped = "clean, if the trap is: the shell runs it"
	harmful = "a warning: the program gets SIGKILL, without its signal"
	inLimit = "clean: the program ends by itself when its limit is over"
)

// ownLimit is the word for what a program has itself.
const ownLimit = "a limit of the program, or another option"

// AdviceWords are the remedies that name the image or the manifest, as regular expressions by how docs/advice.md calls them. A
// remedy in whose words one is found needs a row in Advices.
var AdviceWords = map[string]string{
	"exec in the script":             `with exec\b`,
	"exec form":                      `exec form`,
	"exec in front of a filter":      `exec PROGRAM > >\(tee`,
	"trap that exits":                `trap '?exit|a trap for \{signal\} that exits`,
	"trap that passes the signal on": `trap 'kill -TERM`,
	"remove trap ''":                 `trap ''`,
	"sleep in the background":        `sleep \d+ & wait`,
	"tini or dumb-init":              `\btini or dumb-init|such as tini|init \(tini\)`,
	"tini -g, dumb-init without -c":  `tini -g`,
	"shareProcessNamespace":          `shareProcessNamespace`,
	"STOPSIGNAL of the image":        `\bSTOPSIGNAL\b`,
	"lifecycle.stopSignal":           `lifecycle\.stopSignal`,
	"another stop signal":            `stop signal to SIG`,
	"terminationGracePeriodSeconds":  `terminationGracePeriodSeconds`,
	"handle the signal":              `handle \{signal\}`,
	"pass the signal on":             `pass it on to`,
	"a limit of the hook":            `give up in time|shorten the (?:hook's )?sleep|respond in time|timeout 30 PROGRAM`,
	ownLimit: `(?i)worker_shutdown_timeout|hard-stop-after|graceful[-_]?(shutdown|timeout)|` +
		`die-on-term|process_control_timeout|tasks a time limit|closeAllConnections|timeout-per-shutdown`,
}

// Advices lists them by cause. A row more is a row here; a remedy that nobody can try says so in Shows.
func Advices() []Advice {
	return []Advice{
		{"ShellPID1NoTrap", "", "exec in the script", clean, "advice-exec-in-script"},
		{"ShellPID1NoTrap", "", "exec form", clean, "advice-exec-form"},
		{"ShellPID1NoTrap", "", "tini or dumb-init", "with exec behind it, " + clean, "advice-tini-exec"},
		{"ShellPID1NoTrap", "", "tini or dumb-init", "with exec behind it, of a program without a handler: " + fast, "advice-tini-exec-no-handler"},
		{"ShellPID1NoTrap", "", "tini or dumb-init", "without exec: " + harmful, "advice-tini-over-shell"},
		{"ShellPID1NoTrap", "Several", "trap that passes the signal on", clean, "advice-pass-on-to-two"},
		{"ShellPID1NoTrap", "InTurn", "trap that exits", trapped, "advice-trap-in-loop"},
		{"ShellPID1NoTrap", "NotTERM", "trap that exits", trapped, "advice-trap-quit-in-loop"},
		{"ShellPID1NoTrap", "InTurn", "sleep in the background", trapped, "advice-trap-over-wait"},
		{"ShellPID1NoTrap", "Pipeline", "exec in the script", "without the filter, " + clean, "advice-exec-in-script"},
		{"ShellPID1NoTrap", "Pipeline", "exec in front of a filter", clean, "advice-pipeline"},
		{"ShellPID1NoTrap", "Daemon", "exec in the script", clean, "advice-daemon-in-foreground"},
		{"ShellPID1NoTrap", "Daemon", "tini or dumb-init", harmful, "advice-tini-over-shell"},

		{"SignalDroppedByPID1", "", "handle the signal", clean, "advice-handler"},
		{"SignalDroppedByPID1", "", "tini or dumb-init", fast, "advice-tini"},
		{"SignalDroppedByPID1", "", "tini or dumb-init", fast, "advice-dumb-init"},
		{"SignalDroppedByPID1", "", "shareProcessNamespace", fast, "advice-share-process-namespace"},
		{"SignalDroppedByPID1", "Harmless", "STOPSIGNAL of the image", "no image of the tests has a stop signal that ends nothing", ""},
		{"SignalDroppedByPID1", "Harmless", "tini or dumb-init", "the same", ""},
		{"SignalDroppedByPID1", "Wrapper", "handle the signal", clean, "advice-wrapper-passes-on"},
		{"SignalDroppedByPID1", "Wrapper", "pass the signal on", clean, "advice-wrapper-passes-on"},
		{"SignalDroppedByPID1", "Wrapper", "exec in the script", clean, "advice-exec-in-script"},
		{"SignalDroppedByPID1", "Wrapper", "exec form", clean, "advice-exec-form"},
		{"SignalDroppedByPID1", "Wrapper", "tini or dumb-init", harmful, "advice-tini-over-wrapper"},
		{"SignalDroppedByPID1", "Fixed", "tini or dumb-init", fast, "advice-tini"},
		{"SignalDroppedByPID1", "Fixed", "shareProcessNamespace", fast, "advice-share-process-namespace"},
		{"SignalDroppedByPID1", "Fixed", "trap that exits", trapped, "advice-trap-over-sleep"},
		{"SignalDroppedByPID1", "Daemon", "handle the signal", clean, "advice-daemon-in-foreground"},
		{"SignalDroppedByPID1", "Daemon", "exec in the script", clean, "advice-daemon-in-foreground"},
		{"SignalDroppedByPID1", "Daemon", "tini or dumb-init", harmful, "advice-tini-over-daemon"},

		{"StopSignalMismatch", "", "STOPSIGNAL of the image", clean, "advice-stop-signal-image"},
		{"StopSignalMismatch", "", "lifecycle.stopSignal", "the feature gate ContainerStopSignals is off by default, and in the test cluster", ""},
		{"StopSignalMismatch", "", "handle the signal", clean, "advice-handler-quit"},

		{"StopSignalIgnored", "", "handle the signal", "also after trap '' in a script, " + clean, "advice-handler-over-ignored"},
		{"StopSignalIgnored", "", "remove trap ''", clean, "advice-exec-in-script"},
		{"StopSignalIgnored", "Fixed", "remove trap ''", "under an init, " + fast, "advice-tini-exec-no-handler"},
		{"StopSignalIgnored", "Fixed", "tini or dumb-init", fast, "advice-tini-exec-no-handler"},
		{"StopSignalIgnored", "Shell", "remove trap ''", clean, "advice-exec-in-script"},
		{"StopSignalIgnored", "Shell", "exec in the script", clean, "advice-exec-in-script"},

		{"ShellPID1TrapDeferred", "", "trap that passes the signal on", clean, "advice-trap-passes-on"},
		{"ShellPID1TrapDeferred", "", "exec in the script", clean, "advice-exec-in-script"},
		{"ShellPID1TrapDeferred", "Pipeline", "exec in the script", "without the filter, " + clean, "advice-exec-in-script"},
		{"ShellPID1TrapDeferred", "Pipeline", "exec in front of a filter", clean, "advice-pipeline"},

		{"ChildIgnoresForwardedSignal", "", "handle the signal", clean, "advice-tini-exec"},
		{"ChildIgnoresForwardedSignal", "", "remove trap ''", clean, "advice-tini-exec"},
		{"ChildIgnoresForwardedSignal", "Defers", "tini -g, dumb-init without -c", trapped, "advice-tini-group"},
		{"ChildIgnoresForwardedSignal", "Defers", "tini -g, dumb-init without -c", trapped, "advice-dumb-init-group"},
		{"ChildIgnoresForwardedSignal", "Defers", "exec in the script", clean, "advice-tini-exec"},
		{"ChildIgnoresForwardedSignal", "Fixed", "remove trap ''", fast, "advice-tini-exec-no-handler"},
		{"ChildIgnoresForwardedSignal", "Pipeline", "exec in the script", "without the filter, " + clean, "advice-tini-exec"},
		{"ChildIgnoresForwardedSignal", "Pipeline", "exec in front of a filter", clean, "advice-tini-pipeline"},

		{"SlowShutdown", "", "terminationGracePeriodSeconds", clean, "advice-grace-raised"},
		{"SlowShutdown", "BehindHook", "terminationGracePeriodSeconds", "the hook ends; " + clean, "advice-hook-grace-raised"},
		{"SlowShutdown", "Postgres", "another stop signal", "clean: the program ends the connection", "advice-limit-postgres"},
		{"SlowShutdown", "Nginx", ownLimit, inLimit, "advice-limit-nginx"},
		{"SlowShutdown", "HAProxy", ownLimit, inLimit, "advice-limit-haproxy"},
		{"SlowShutdown", "PHPFPM", ownLimit, inLimit, "advice-limit-php-fpm"},
		{"SlowShutdown", "Gunicorn", ownLimit, inLimit, "advice-limit-gunicorn"},
		{"SlowShutdown", "Celery", ownLimit, inLimit, "advice-limit-celery"},
		{"SlowShutdown", "Node", ownLimit, inLimit, "advice-limit-node"},
		{"SlowShutdown", "Httpd", ownLimit, "Apache is in no image of the tests", ""},
		{"SlowShutdown", "Uvicorn", ownLimit, "uvicorn is in no image of the tests", ""},
		{"SlowShutdown", "Java", ownLimit, "Spring Boot is in no image of the tests", ""},
		{"SlowShutdown", "Ignores", "remove trap ''", clean, "advice-wrapper-passes-on"},
		{"SlowShutdown", "Ignores", "handle the signal", clean, "advice-wrapper-passes-on"},
		{"SlowShutdown", "Unsent", "exec in the script", clean, "advice-exec-in-script"},
		{"SlowShutdown", "Trap", "trap that passes the signal on", clean, "advice-trap-passes-on"},
		{"SlowShutdown", "Trap", "exec in the script", clean, "advice-exec-in-script"},
		{"SlowShutdown", "Trap", "terminationGracePeriodSeconds", clean, "advice-grace-raised"},
		{"SlowShutdown", "Pipeline", "exec in the script", "without the filter, " + clean, "advice-exec-in-script"},
		{"SlowShutdown", "Pipeline", "exec in front of a filter", clean, "advice-pipeline"},
		{"SlowShutdown", "Uwsgi", ownLimit, "uwsgi is in no image of the tests", ""},
		{"SlowShutdown", "Systemd", "another stop signal", "systemd runs in no pod of the tests", ""},

		{"CoreDumpInProgress", "", "terminationGracePeriodSeconds", "the core dump is the kernel's, and as of a slow program else: see SlowShutdown", ""},

		{"PostStartHookRunning", "", "a limit of the hook", "the hook gives up, and the container goes on; " + clean, "advice-post-start-limit"},
		{"PostStartHookRunning", "Sleep", "a limit of the hook", "nothing is left to wait for; " + clean, "advice-post-start-sleeps-less"},
		{"PostStartHookRunning", "HTTP", "a limit of the hook", "when the hook has ended it is the same as with a sleep", ""},
		{"PreStopHookRunning", "", "a limit of the hook", "the hook gives up; " + clean, "advice-hook-limit"},
		{"PreStopHookRunning", "", "terminationGracePeriodSeconds", "the hook ends; " + clean, "advice-hook-grace-raised"},
		{"PreStopHookRunning", "OnlySleeps", "a limit of the hook", "the hook ends; " + clean, "advice-hook-grace-raised"},
		{"PreStopHookRunning", "OnlySleeps", "terminationGracePeriodSeconds", "the hook ends; " + clean, "advice-hook-grace-raised"},
		{"PreStopHookRunning", "Sleep", "a limit of the hook", "the hook ends; " + clean, "advice-hook-sleeps-less"},
		{"PreStopHookRunning", "Sleep", "terminationGracePeriodSeconds", "the hook ends; " + clean, "advice-hook-sleeps-less"},
		{"PreStopHookRunning", "HTTP", "a limit of the hook", "the hook ends; " + clean, "advice-hook-answered"},
		{"PreStopHookRunning", "HTTP", "terminationGracePeriodSeconds", "the hook ends; " + clean, "advice-hook-answered"},
	}
}

// byHandler is the exit code that only the handler of the program of these scenarios gives, and byTERM that of a program
// that SIGTERM has ended. An init gives that of its child.
const (
	byHandler = 7
	byTERM    = 128 + 15
)

// handler is a Python program that, asked to stop, writes /data/asked where there is such a directory, and ends three
// seconds later.
const handler = `import os, signal, sys, time
def stop(*_):
    if os.path.isdir('/data'): open('/data/asked', 'w').close()
    time.sleep(3)
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
while True: time.sleep(1000)`

// passesOn is one that runs that program as npm and conda run do, and passes SIGTERM on to it; keeps is one that does not.
const (
	passesOn = `import signal, subprocess, sys
child = subprocess.Popen(['python3', '-c', sys.argv[1]])
signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
sys.exit(child.wait())`
	keeps = `import subprocess, sys
sys.exit(subprocess.run(['python3', '-c', sys.argv[1]]).returncode)`
)

// inDaemon is the part of a script that starts a Python program in a session of its own, as a daemon.
func inDaemon(program string) string { return "busybox setsid python3 -c \"" + program + "\" & " }

// advice lists the pods that do what remedies say: each ends long before its grace period does, and nothing is told of it.
func advice() []bed.Scenario {
	share := true
	shared := pod(60, bed.BusyboxImage, "sleep", "100000")
	shared.ShareProcessNamespace = &share
	return []bed.Scenario{
		// Of a shell.
		follows("exec-in-script", "a script starts its program with exec",
			pod(60, bed.ProgramsImage, "dash", "-c", "true; exec python3 -c \""+handler+"\""), handles, byHandler),
		follows("exec-form", "the image starts its program without a shell", python(60, handler), handles, byHandler),
		follows("trap-in-loop", "a script that waits in a loop has a trap",
			pod(60, bed.BusyboxImage, "sh", "-c", "trap 'exit 143' TERM\nuntil [ -e /there ]; do sleep 2; done"), handles, byTERM),
		follows("trap-quit-in-loop", "a script that waits in a loop has a trap for its image's stop signal, SIGQUIT",
			pod(60, bed.QuitShellImage, "dash", "-c", "trap 'exit 7' QUIT\nuntil [ -e /there ]; do sleep 2; done"),
			"until p=$(first) && has SigCgt 3 $p; do sleep 1; done\n", byHandler),
		follows("trap-over-wait", "a script that sleeps for long in a loop has a trap, and sleeps in the background",
			pod(60, bed.ProgramsImage, "dash", "-c", "trap 'exit 143' TERM\nwhile :; do sleep 3600 & wait; done"), handles, byTERM),
		follows("trap-passes-on", "a script has its program in the background and passes SIGTERM on to it",
			pod(60, bed.ProgramsImage, "dash", "-c", "python3 -c \""+handler+"\" & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid"),
			handles+handlesBelow, byHandler),
		follows("pass-on-to-two", "a script has two programs in the background and passes SIGTERM on to both",
			pod(60, bed.ProgramsImage, "dash", "-c", "python3 -c \""+handler+"\" & A=$!; python3 -c \""+handler+"\" & B=$!; "+
				"trap 'kill -TERM $A $B' TERM; wait $A $B; wait $A $B"), handles+handlesBelow, byHandler),
		follows("pipeline", "bash starts its program with exec, in front of tee",
			pod(60, bed.ProgramsImage, "bash", "-c", "exec python3 -c \""+handler+"\" > >(tee /log) 2>&1"), handles, byHandler),
		follows("daemon-in-foreground", "a script starts cron as a daemon, and nginx in the foreground with exec",
			pod(60, bed.ServersImage, "sh", "-c", "cron; exec nginx -c /everyday/nginx.conf"), handles, 0),
		follows("trap-over-sleep", "a container that only keeps running is a shell with a trap and a sleep in its background",
			pod(60, bed.ProgramsImage, "sh", "-c", "trap exit TERM; sleep infinity & wait"), handles, byTERM),

		// Of a small init.
		follows("tini", "tini runs a program without a handler", pod(60, bed.BusyboxImage, "/bin/tini", "--", "sleep", "100000"), childRuns, byTERM),
		follows("dumb-init", "dumb-init runs a program without a handler", pod(60, bed.ProgramsImage, "dumb-init", "sleep", "100000"), childRuns, byTERM),
		follows("tini-exec", "tini runs a script that starts its program with exec",
			pod(60, bed.ProgramsImage, "tini", "--", "dash", "-c", "true; exec python3 -c \""+handler+"\""), handlesBelow, byHandler),
		follows("tini-exec-no-handler", "tini runs a script that starts a program without a handler with exec",
			pod(60, bed.ProgramsImage, "tini", "--", "dash", "-c", "true; exec sleep 100000"), childRuns, byTERM),
		follows("tini-pipeline", "tini runs bash, which starts its program with exec, in front of tee",
			pod(60, bed.ProgramsImage, "tini", "--", "bash", "-c", "exec python3 -c \""+handler+"\" > >(tee /log) 2>&1"), handlesBelow, byHandler),
		follows("tini-group", "tini sends SIGTERM to the whole group, of a shell with a trap and a program in its foreground",
			pod(60, bed.ProgramsImage, "tini", "-g", "--", "dash", "-c", "trap 'exit 7' TERM; sleep 100000; true"), handlesBelow, byHandler),
		follows("dumb-init-group", "dumb-init sends SIGTERM to the whole group, of a shell with a trap and a program in its foreground",
			pod(60, bed.ProgramsImage, "dumb-init", "bash", "-c", "trap 'exit 7' TERM; sleep 100000; true"), handlesBelow, byHandler),
		killedUnasked("tini-over-shell", "tini runs a shell, and that its program without exec: SIGTERM ends the shell, and the program is killed unasked",
			"tini", "--", "dash", "-c", "python3 -c \""+handler+"\"; true"),
		killedUnasked("tini-over-wrapper", "tini runs a program that runs another one and has no handler: SIGTERM ends the first, and the second is killed unasked",
			"tini", "--", "python3", "-c", keeps, handler),
		killedUnasked("tini-over-daemon", "tini runs tail beside a daemon: SIGTERM ends tail, and the daemon is killed unasked",
			"tini", "--", "dash", "-c", inDaemon(handler)+"exec tail -f /dev/null"),

		// Of a program, its image and its manifest.
		follows("handler", "a program handles SIGTERM", python(60, endsOnTERM), handles, 0),
		follows("handler-over-ignored", "a script ignores SIGTERM, and the program that it executes sets up a handler all the same",
			pod(60, bed.ProgramsImage, "dash", "-c", "trap '' TERM; exec python3 -c \""+handler+"\""), handles, byHandler),
		follows("handler-quit", "the image asks for SIGQUIT, and the program handles it",
			pod(60, bed.QuitImage, "/victim", "drain", "0"), ready, 2), // as Go's runtime does
		follows("wrapper-passes-on", "a program that runs another one passes SIGTERM on to it",
			pod(60, bed.ProgramsImage, "python3", "-c", passesOn, handler), handles+handlesBelow, byHandler),
		follows("share-process-namespace", "the pod shares its process namespace, so that its program is not PID 1",
			shared, "until [ -n \"$(tasks)\" ]; do sleep 1; done\n", byTERM),
		follows("stop-signal-image", "the image asks for SIGTERM, which the program handles", pod(60, bed.TermImage, "/victim", "term-only", "0"), ready, 0),
		follows("grace-raised", "the program needs 20 seconds to end, and has more", victim(90, "drain", "20"), ready, 0),

		// Of a hook.
		follows("hook-limit", "the preStop hook has a limit of five seconds of its own",
			preStop(python(60, handler), executing("sh", "-c", "timeout 5 sleep 100000")), handles, byHandler),
		follows("hook-grace-raised", "the preStop hook takes ten seconds, and the grace period is longer",
			preStop(python(60, handler), executing("sh", "-c", "sleep 10")), handles, byHandler),
		follows("hook-sleeps-less", "the preStop hook sleeps for a sixth of the grace period", preStop(python(60, handler), sleeping(10)), handles, byHandler),
		answered(),
		follows("post-start-sleeps-less", "the postStart hook sleeps for three seconds", postStart(python(60, handler), sleeping(3)), handles, byHandler),
		follows("post-start-limit", "the postStart hook has a limit of three seconds, and does not fail when that is over",
			postStart(python(60, handler), executing("sh", "-c", "timeout 3 sleep 100000 || true")), handles, byHandler),
	}
}

// handlesBelow waits until the program below the first process handles SIGTERM, and childRuns until it runs.
const (
	handlesBelow = "until c=$(child $p) && has SigCgt 15 $c; do sleep 1; done\n"
	childRuns    = "until c=$(child $p) && [ \"$(cat /proc/$c/comm)\" = sleep ]; do sleep 1; done\n"
)

// follows is a pod that is deleted when it is ready, and whose first process ends by itself.
func follows(name, story string, spec corev1.PodSpec, until string, code int32) bed.Scenario {
	return bed.Scenario{
		Name:  "advice-" + name,
		Story: "innocent: " + story,
		Fault: bed.Fault{Pod: spec, Break: onFirst(until)},
		Want:  bed.Want{Ends: map[string]int32{spec.Containers[0].Name: code}},
	}
}

// killedUnasked is a pod of which the program never gets its signal: a second container, which ends after the first one,
// sees that it has not written that down, and gives 0.
func killedUnasked(name, story string, command ...string) bed.Scenario {
	spec := pod(60, bed.ProgramsImage, command...)
	spec.Containers = append(spec.Containers, corev1.Container{Name: "witness", Image: bed.ProgramsImage, Command: []string{
		"dash", "-c", "trap 'sleep 6; [ ! -e /data/asked ]; exit $?' TERM; while :; do sleep 1; done",
	}})
	spec = withVolume(spec, "data", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	s := follows(name, story, spec,
		"until for t in $(tasks); do [ \"$(cat /proc/$t/comm)\" = python3 ] && has SigCgt 15 $t && break; done; do sleep 1; done\n", byTERM)
	s.Ends["witness"] = 0
	return s
}

// answered has a hook that asks a port, where an answer takes ten seconds.
func answered() bed.Scenario {
	spec := pod(60, bed.BusyboxImage, "sh", "-c", `trap 'exit 7' TERM
nc -ll -p 8080 -e sh -c 'sleep 10; printf "HTTP/1.0 204 No Content\r\n\r\n"' &
while :; do sleep 1; done`)
	s := follows("hook-answered", "the preStop hook is an HTTP request that is answered after ten seconds", preStop(spec, asking()), handles, byHandler)
	s.Needs = []bed.Need{bed.PodNetwork}
	return s
}

// postStart gives the pod's container a postStart hook.
func postStart(spec corev1.PodSpec, hook *corev1.LifecycleHandler) corev1.PodSpec {
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook}
	return spec
}
