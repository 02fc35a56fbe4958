package diagnose_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// running has the first process run other ones, with PIDs from 101 on. first is its comm, its program file, its system call, and the
// container's program where that differs; _ is a blank. The others are divided by commas: comm, system call, and what differs of below
// the first process, age at the deletion (an hour), apart in a group of its own, behind in the background, and catching SIGINT and SIGTERM.
func running(first, others string) func(p *evidence.Pod, t *evidence.Task) {
	return func(p *evidence.Pod, t *evidence.Task) {
		words := strings.Fields(first)
		t.Comm, t.Probe.Exe, t.Probe.Syscall, t.HadChild = strings.ReplaceAll(words[0], "_", " "), words[1], words[2], true
		if len(words) > 3 {
			p.Containers[0].Program = words[3]
		}
		t.Probe.Started = requested.Add(-time.Hour - time.Second)
		for i, text := range strings.Split(others, ",") {
			if words := strings.Fields(text); len(words) > 0 {
				p.Tasks = append(p.Tasks, other(101+i, words))
			}
		}
	}
}

// other is one of these processes.
func other(pid int, words []string) evidence.Task {
	t, age := task(pid, 100, strings.ReplaceAll(words[0], "_", " "), evidence.Sleeping, words[1]), time.Hour
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "below":
			t.PPID, _ = strconv.Atoi(value)
		case "age":
			age, _ = time.ParseDuration(value)
		case "apart":
			t.Probe.Group = pid
		case "behind":
			t.Ignored = bitINT | bitQUIT
		case "catching":
			t.Caught = bitINT | bitTERM
		}
	}
	t.Probe.Started, t.Probe.Start = requested.Add(-age), uint64(1_000_000-int(age/(10*time.Millisecond))+pid)
	return t
}

// The program of everyday images is named, or none is, and what is said to do about it can be done.
func TestWhoIsTheProgram(t *testing.T) {
	const (
		dropped = "SignalDroppedByPID1"
		shell   = "ShellPID1NoTrap"
		// What is to be done first. NAMED is who is named, and PID1 the first process.
		exec    = "start NAMED with exec in the script (exec tini -- PROGRAM if it has no handler)"
		execAny = "start the program with exec in the script (exec tini -- PROGRAM if it has no handler)"
		passOn  = "pass SIGTERM on in the script: a & A=$!; b & B=$!; trap 'kill -TERM $A $B' TERM; wait $A $B; wait $A $B"
		inFront = "start NAMED in the foreground, with exec"
		pipe    = "replace the pipe by exec PROGRAM, or in bash: exec PROGRAM > >(tee FILE) 2>&1"
		trap    = "begin the script with trap 'exit 143' TERM. Run sleeps as: sleep 60 & wait"
		handle  = "let PID1 handle SIGTERM, or run it under an init (tini)"
		forward = "start NAMED directly (exec), or let PID1 forward SIGTERM to it"
		short   = "run PID1 under an init (tini), or delete such a pod with a short --grace-period"

		dash, bash, ash = "sh dash wait4", "start.sh bash wait4", "sh busybox wait4"
		cron            = "cron clock_nanosleep apart age=1h0m2s, "
		nginx           = "nginx rt_sigsuspend apart age=1h0m2s, "
		sleeps          = "sleep clock_nanosleep age=20s"
		tee             = ", tee read"
	)
	for name, tc := range map[string]struct {
		runs, others string
		role         fact.Role
		named, cause string // named is "" for the first process, or for none
		first        string
	}{
		// A shell and what it waits for.
		"dash: java; true":                {dash, "java futex", fact.Awaited, "java", shell, exec},
		"bash: node; true":                {bash, "node epoll_wait", fact.Awaited, "node", shell, exec},
		"busybox: nginx; true":            {ash, "nginx rt_sigsuspend", fact.Awaited, "nginx", shell, exec},
		"a script in a script":            {dash, "sh wait4, java futex below=101", fact.Awaited, "java", shell, exec},
		"npm in a script":                 {dash, "npm_start epoll_wait, sh wait4 below=101, node epoll_wait below=102", fact.Awaited, "node", shell, exec},
		"uvicorn & tail -f log":           {bash, "uvicorn epoll_wait catching, tail read", fact.Several, "", shell, passOn},
		"service cron start; node":        {dash, cron + "node epoll_wait", fact.Awaited, "node", shell, exec},
		"php-fpm -D; nginx":               {bash, "php-fpm8.2 epoll_wait apart age=1h0m2s, nginx rt_sigsuspend", fact.Awaited, "nginx", shell, exec},
		"xvfb-run node":                   {"xvfb-run dash wait4", "Xvfb epoll_wait catching age=1h0m2s, node epoll_wait", fact.Awaited, "node", shell, exec},
		"nginx; tail -f /dev/null":        {dash, nginx + "tail read", fact.Daemon, "nginx", shell, inFront},
		"nginx; mysqld; tail -f":          {dash, nginx + "mysqld poll apart, tail read", fact.Daemon, "", shell, "start the daemon in the foreground, with exec"},
		"nginx; sleep infinity":           {dash, nginx + "sleep clock_nanosleep", fact.Daemon, "nginx", shell, inFront},
		"server & wait, in dash":          {"sh dash rt_sigsuspend", "server epoll_wait catching", fact.Several, "", shell, passOn},
		"server & wait, in bash":          {bash, "server epoll_wait behind", fact.Several, "", shell, passOn},
		"server & while sleep":            {dash, "server epoll_wait behind," + sleeps, fact.Several, "", shell, passOn},
		"server & while probe":            {dash, "server epoll_wait behind, curl poll age=-3s", fact.Several, "", shell, passOn},
		"a & b & wait -n":                 {bash, "python3 poll behind, node epoll_wait catching", fact.Several, "", shell, passOn},
		"nginx & while inotifywait":       {bash, "nginx rt_sigsuspend catching, inotifywait poll age=59m", fact.Several, "", shell, passOn},
		"rsyslogd -n":                     {dash, "rsyslogd select behind", fact.Several, "", shell, passOn},
		"server & worker":                 {dash, "server epoll_wait behind, worker poll", fact.Several, "", shell, passOn},
		"steps of a job":                  {bash, "pytest poll age=20s", fact.InTurn, "", shell, trap},
		"rsyslogd; crond; tail -F":        {dash, "rsyslogd poll apart age=1h0m2s, crond clock_nanosleep apart age=1h0m2s, tail read", fact.Daemon, "crond", shell, inFront},
		"a script that runs a loop":       {dash, "sh wait4," + " sleep clock_nanosleep below=101 age=1s", fact.Unnamed, "", shell, execAny},
		"set -m; server":                  {bash, "server epoll_wait apart", fact.Unnamed, "", shell, execAny},
		"while sleep":                     {ash, sleeps, fact.InTurn, "", shell, trap},
		"service cron start; while sleep": {dash, cron + sleeps, fact.InTurn, "", shell, trap},
		"ssh-agent; while sleep":          {dash, "ssh-agent poll apart," + sleeps, fact.InTurn, "", shell, trap},
		"tail, and what an exec has left": {dash, "tail read, sh wait4 apart age=1m", fact.InTurn, "", shell, trap},
		"one program after the other":     {dash, "curl poll age=-8s", fact.InTurn, "", shell, trap},
		"between two programs":            {dash, "", fact.InTurn, "", shell, trap},

		// Pipelines.
		"java | tee":             {dash, "java futex" + tee, fact.Piped, "java", shell, pipe},
		"npm start | tee":        {bash, "npm_start epoll_wait, tee read, node epoll_wait below=101", fact.Piped, "node", shell, pipe},
		"httpd | rotatelogs":     {dash, "httpd select, rotatelogs poll", fact.Piped, "httpd", shell, pipe},
		"java | grep | tee":      {dash, "java futex, grep read" + tee, fact.Piped, "java", shell, pipe},
		"java | while read":      {bash, "java futex, sh read", fact.Piped, "java", shell, pipe},
		"cron; java | tee":       {dash, cron + "java futex" + tee, fact.Piped, "java", shell, pipe},
		"java | tee, throttled":  {dash, "java futex, tee read age=59m59.4s", fact.Piped, "java", shell, pipe},
		"exec > >(tee); node":    {bash, "tee read, node epoll_wait", fact.Awaited, "node", shell, exec},
		"java | tee in a script": {dash, "sh wait4, java futex below=101, tee read below=101", fact.Piped, "java", shell, pipe},
		"while curl | tee":       {bash, "curl poll age=-3s, tee read age=-3s", fact.InTurn, "", shell, trap},

		// A program and its helpers.
		"node, chrome":            {"node node epoll_wait", "chrome poll apart", fact.Itself, "", dropped, handle},
		"node, esbuild":           {"node node epoll_wait", "esbuild futex", fact.Itself, "", dropped, handle},
		"python, data workers":    {"python3 python3.11 poll", "pt_data_worker poll, pt_data_worker poll", fact.Itself, "", dropped, handle},
		"python, multiprocessing": {"python3 python3.11 futex", "python3 read", fact.Itself, "", dropped, handle},
		"python, joins a pool":    {"python3 python3.11 wait4", "python3 read, python3 read", fact.Itself, "", dropped, handle},
		"php, mysqldump":          {"php php8.2 poll", "mysqldump read", fact.Itself, "", dropped, handle},
		"python, sleep":           {"python3 python3.11 wait4", sleeps, fact.Itself, "", dropped, handle},

		// One that only waits for another one.
		"npm start":         {"npm_start node epoll_wait", "sh wait4, node epoll_wait below=101", fact.Awaited, "node", dropped, forward},
		"npm, two programs": {"npm_start node epoll_wait", "node epoll_wait, node epoll_wait", fact.Unnamed, "", dropped, handle},
		"conda run":         {"conda python3.11 poll", "bash wait4, gunicorn select below=101", fact.Awaited, "gunicorn", dropped, forward},
		"python subprocess": {"python3 python3.11 wait4", "java futex", fact.Awaited, "java", dropped, forward},
		"yarn start":        {"node node epoll_wait yarn", "node epoll_wait", fact.Awaited, "node", dropped, forward},

		// One that has no setting for signals.
		"sleep infinity":                     {"sleep sleep clock_nanosleep", "", fact.Itself, "", dropped, short},
		"tail -f /dev/null":                  {"tail busybox read", "", fact.Itself, "", dropped, short},
		"cat, with a terminal":               {"cat cat read", "", fact.Itself, "", dropped, short},
		"sh -c sleep, and what an exec left": {"sleep sleep clock_nanosleep bash", "tmux:_server poll apart age=10m", fact.Itself, "", dropped, short},
		"python, forks and joins":            {"python3 python3 wait4", "python3 poll", fact.Itself, "", dropped, handle},
		"cat, and what an exec left":         {"cat cat read cat", "sh wait4 apart age=1m", fact.Itself, "", dropped, short},
		"crond -f":                           {"crond busybox clock_nanosleep", "", fact.Itself, "", dropped, short},
		"service cron start; exec tail":      {"tail tail read sh", cron, fact.Itself, "", dropped, short},
		"nginx; exec tail":                   {"tail tail read sh", nginx, fact.Daemon, "nginx", dropped, inFront},
		"cron; nginx; exec tail":             {"tail tail read sh", cron + nginx, fact.Daemon, "nginx", dropped, inFront},
		"nginx; php-fpm; exec tail": {"tail tail read sh", nginx + "php-fpm poll apart", fact.Daemon, "", dropped,
			"start the program that serves in the foreground"},
	} {
		t.Run(name, func(t *testing.T) {
			p := stopping(func(p *evidence.Pod, first *evidence.Task) {
				p.Time = requested.Add(15 * time.Second)
				running(tc.runs, tc.others)(p, first)
			})
			view := fact.See(p)
			if _, role := fact.FirstProcesses(view)[0].Main(view); role != tc.role {
				t.Errorf("role %d, want %d", role, tc.role)
			}
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			named, pid1 := "", p.Tasks[0].Comm
			if v.Objects.Child != nil {
				named = v.Objects.Child.Comm
			}
			if strings.Contains(pid1, " ") {
				pid1 = strconv.Quote(pid1)
			}
			first := "nothing now; for the next deletion, " + strings.NewReplacer("NAMED", tc.named, "PID1", pid1).Replace(tc.first)
			if v.Cause != tc.cause || named != tc.named || !strings.HasPrefix(v.First, first) {
				t.Errorf("%s names %q, and first: %s, want %s, %q, %s", v.Cause, named, v.First, tc.cause, tc.named, first)
			}
			if strings.Contains(v.First, "(tini)") && strings.Contains(v.Avoid, "tini") {
				t.Errorf("first: %s, but avoid: %s", v.First, v.Avoid)
			}
			if tc.named == "" && strings.Contains(v.Message, "never receives") {
				t.Errorf("%s", v.Message)
			}
		})
	}
}

// In a pipeline, no cause advises exec in the script alone, a trap or the background.
func TestPipelines(t *testing.T) {
	trapped := func(exe, children string) func(p *evidence.Pod, first *evidence.Task) {
		return func(p *evidence.Pod, first *evidence.Task) {
			first.Caught = bitTERM
			running("sh "+exe+" wait4", children)(p, first)
		}
	}
	for name, tc := range map[string]struct {
		pod        *evidence.Pod
		cause      string
		confidence diagnose.Confidence
	}{
		"a shell with a trap": {stopping(trapped("dash", "java futex, tee read")), "ShellPID1TrapDeferred", diagnose.Proved},
		"a shell with a trap, which may be in a loop": {
			tooSlow(trapped("bash", "java futex age=5s, tee read age=5s")), "SlowShutdown", diagnose.Inferred,
		},
		"tini over a shell with a trap": {stopping(func(p *evidence.Pod, first *evidence.Task) {
			running("tini tini rt_sigtimedwait", "sh wait4 catching age=1h0m1s, java futex catching below=101, tee read below=101")(p, first)
			p.Tasks[1].Probe.Exe = "dash"
		}), "ChildIgnoresForwardedSignal", diagnose.Proved},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(tc.pod)
			v, _ := d.Verdict()
			if v.Cause != tc.cause || v.Confidence != tc.confidence {
				t.Fatalf("%s (%s), want %s (%s): %s", v.Cause, v.Confidence, tc.cause, tc.confidence, v.Message)
			}
			if !strings.Contains(v.First, "exec PROGRAM > >(tee FILE) 2>&1") || !strings.Contains(v.Remedy, "log to stdout only and start java with exec") ||
				strings.Contains(v.First+v.Remedy, "kill -TERM") || strings.Contains(v.First+v.Remedy, "tini -g") || !strings.Contains(v.Message, "java") {
				t.Errorf("%s: %s\n%s", v.Message, v.First, v.Remedy)
			}
		})
	}
}

// timeout(1) is no advice about a preStop hook that only sleeps.
func TestHookThatOnlySleeps(t *testing.T) {
	shell := func(age time.Duration, comm string) func(p *evidence.Pod) {
		return func(p *evidence.Pod) {
			hook := &p.Tasks[len(p.Tasks)-1]
			hook.Comm, hook.Probe.Exe, hook.Probe.Syscall = "sh", "dash", "wait4"
			c := task(121, 120, comm, evidence.Sleeping, "clock_nanosleep")
			c.Probe.Started = p.Time.Add(-age)
			p.Tasks, p.Containers[0].PreStopOnlySleeps = append(p.Tasks, c), false
		}
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		sleeps bool
	}{
		"sleep 60, by the specification":   {func(*evidence.Pod) {}, true},
		"what a shell has executed":        {func(p *evidence.Pod) { p.Containers[0].PreStopOnlySleeps = false }, true},
		"touch /draining; sleep 60":        {shell(28*time.Second, "sleep"), true},
		"until [ -e /quorum ]; do sleep 1": {shell(time.Second, "sleep"), false},
		"curl":                             {shell(28*time.Second, "curl"), false},
	} {
		d := cause.Diagnose(stopping(func(p *evidence.Pod, first *evidence.Task) {
			first.Caught = bitTERM
			hooked(p, requested.Add(500*time.Millisecond))
			gone(p, 137, 2*time.Second)
			tc.change(p)
		}))
		v, _ := d.Verdict()
		limit, shorten := strings.Contains(v.First+v.Remedy, "timeout(1)"), strings.Contains(v.First, "shorten the sleep")
		if v.Cause != "PreStopHookRunning" || limit == tc.sleeps || shorten != tc.sleeps {
			t.Errorf("%s: %s: %s\n%s", name, v.Cause, v.First, v.Remedy)
		}
	}
}
