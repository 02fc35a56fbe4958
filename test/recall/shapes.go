package main

import "github.com/nodeagent-io/nodeagent/test/bed"

// What is true of a program that burns its grace period, in the words of docs/reasons.
var (
	// slow is a program that takes its stop signal and is not done in time.
	slow = []told{{cause: "SlowShutdown"}}
	// dropped is a PID 1 without a handler.
	dropped = []told{{cause: "SignalDroppedByPID1"}}
	// mismatch is a program with handlers for other signals than the image's stop signal.
	mismatch = []told{{cause: "StopSignalMismatch"}}
)

// below is a program that passes its stop signal on to another one, which it waits for: that one has to be named.
func below(name string) []told { return []told{{cause: "SlowShutdown", says: []string{name}}} }

func command(words ...string) []string { return words }

// web is a request that is never answered in full.
var web = &client{sends: bed.SlowRequest}

// shapes lists what everyday images run. Where Debian has the program it is the real one.
func shapes() []*shape {
	return []*shape{
		java(), node(), npm(), python(), gunicorn(), celery(),
		nginx(), phpFPM(), postgres(), redis(), broker(),
		sidecar(), logAgent(), runner(), wrapper(), nested(), s6(), supervisor(), cron(), job(),
		pipeline(), beside(), helper(), sideshow(), crashing(), initWaits(), again(),
	}
}

// A server that handles SIGTERM, as the shapes below have it in their scripts.
const serves = "python3 /everyday/server.py in-time"

// noTrap is a shell as PID 1 that has no trap.
var noTrap = []told{{cause: "ShellPID1NoTrap", says: []string{"shell "}}}

func pipeline() *shape {
	deferred := []told{{cause: "ShellPID1TrapDeferred"}, {cause: "SlowShutdown"}}
	return &shape{name: "pipeline", what: "a program whose output a filter copies", programs: map[behaviour]program{
		inTime: {
			image: bed.RuntimesImage, command: command("bash", "-c", "exec "+serves+" > >(tee /tmp/log) 2>&1"),
			why: "bash has started the filter, and become the program",
		},
		tooSlow: {image: bed.RuntimesImage, command: command("sh", "-c", serves+" | tee /tmp/log"), burns: noTrap, why: "a shell waits for a pipeline"},
		noHandler: {
			image: bed.RuntimesImage, command: command("sh", "-c", "trap 'exit 143' TERM; "+serves+" | tee /tmp/log"),
			burns: deferred, why: "a shell with a trap waits for a pipeline",
		},
	}}
}

func beside() *shape {
	return &shape{name: "beside", what: "a program with a daemon beside it", programs: map[behaviour]program{
		inTime: {image: bed.ServersImage, command: command("sh", "-c", "cron; exec "+serves), why: "the shell has become the program"},
		tooSlow: {
			image: bed.ServersImage, command: command("sh", "-c", "cron; "+serves+"; true"),
			burns: []told{{cause: "ShellPID1NoTrap", says: []string{"so python3 never receive"}}}, why: "a shell waits for the program, and cron runs beside it",
		},
		noHandler: {
			image: bed.ServersImage, command: command("sh", "-c", "(setsid "+serves+" &); exec tail -f /dev/null"),
			burns: dropped, why: "tail keeps the container running for a daemon",
		},
	}}
}

func helper() *shape {
	runs := func(handler string) []string {
		return command("python3", "-c", "import signal, subprocess, sys, time\n"+
			"subprocess.Popen([\"python3\", \"-c\", \"import time; time.sleep(100000)\"])\n"+handler+"open(\"/ready\", \"w\").close()\nwhile True: time.sleep(1000)\n")
	}
	return &shape{name: "helper", what: "a program with a helper, as node with a browser", programs: map[behaviour]program{
		inTime: {image: bed.RuntimesImage, command: runs("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"), why: "its handler ends it"},
		tooSlow: {
			image: bed.RuntimesImage, command: runs("signal.signal(signal.SIGTERM, lambda *_: time.sleep(100000))\n"), own: true, burns: slow, why: "its handler does not end",
		},
		noHandler: {image: bed.RuntimesImage, command: runs(""), burns: []told{{cause: "SignalDroppedByPID1", says: []string{"PID 1, python3"}}},
			why: "it has no handler"},
	}}
}

func sideshow() *shape {
	return &shape{name: "sideshow", what: "what only keeps a container running", file: "/everyday", programs: map[behaviour]program{
		inTime:    {image: bed.RuntimesImage, command: command("tini", "--", "sleep", "infinity"), why: "sleep is not PID 1: the default action ends it"},
		tooSlow:   {image: bed.RuntimesImage, command: command("sleep", "infinity"), burns: dropped, why: "sleep is PID 1"},
		noHandler: {image: bed.RuntimesImage, command: command("tail", "-f", "/dev/null"), burns: dropped, why: "tail is PID 1"},
	}}
}

// crashing is Python beside a sidecar that crashes.
func crashing() *shape {
	s := python()
	s.name, s.what, s.crashes = "crashing", "Python beside a sidecar that crashes", true
	return s
}

// again is Python in a pod that is deleted twice.
func again() *shape {
	s := python()
	s.name, s.what, s.again = "again", "Python, deleted again with a shorter grace period", true
	return s
}

func initWaits() *shape {
	polls := func(wait string) []string { return command("sh", "-c", "until [ -e /never ]; do "+wait+"; done") }
	return &shape{name: "init", what: "an init container that waits", container: "wait", init: true, file: "/everyday", programs: map[behaviour]program{
		inTime: {
			image: bed.ServersImage, command: command("sh", "-c", "trap \"exit 143\" TERM; until [ -e /never ]; do sleep 2 & wait; done"), why: "its trap ends it",
		},
		tooSlow: {image: bed.ServersImage, command: polls("sleep 2"), burns: noTrap, why: "a shell without a trap polls"},
	}}
}

func java() *shape {
	return &shape{name: "java", what: "Java, with a shutdown hook", port: 8080, programs: map[behaviour]program{
		inTime: {
			image: bed.RuntimesImage, command: command("java", "-Xmx64m", "/everyday/Server.java", "in-time"),
			why: "its shutdown hook takes two seconds",
		},
		tooSlow: {
			image: bed.RuntimesImage, command: command("java", "-Xmx64m", "/everyday/Server.java", "too-slow"),
			own: true, burns: slow, why: "its shutdown hook waits for work without end",
		},
		noHandler: {
			image: bed.RuntimesImage, command: command("java", "-Xrs", "-Xmx64m", "/everyday/Server.java", "in-time"),
			burns: dropped, why: "-Xrs: the virtual machine handles no signals",
		},
	}}
}

func node() *shape {
	return &shape{name: "node", what: "Node.js", port: 8080, programs: map[behaviour]program{
		inTime: {
			image: bed.RuntimesImage, command: command("node", "/everyday/server.js"),
			why: "it closes its server, which has no connection",
		},
		tooSlow: {
			image: bed.RuntimesImage, command: command("node", "/everyday/server.js"), client: web,
			burns: slow, why: "it waits for a request that is not done",
		},
		noHandler: {
			image: bed.RuntimesImage, command: command("node", "/everyday/server.js", "no-handler"),
			// Node.js takes each signal, and without a listener sends it to itself with the default action, which the kernel drops.
			burns: []told{{cause: "SlowShutdown", says: []string{"add a listener"}}, {cause: "SignalDroppedByPID1"}},
			why:   "it has no listener for SIGTERM",
		},
	}}
}

func npm() *shape {
	return &shape{name: "npm", what: "npm start", port: 8080, directory: "/everyday", programs: map[behaviour]program{
		inTime: {
			image: bed.RuntimesImage, command: command("npm", "start"),
			why: "npm passes SIGTERM on to node, which ends",
		},
		tooSlow: {
			image: bed.RuntimesImage, command: command("npm", "start"), client: web,
			burns: below("subprocess node "), why: "npm passes SIGTERM on to node, which waits for a request",
		},
		noHandler: {
			image: bed.RuntimesImage, command: command("npm", "run", "no-handler"),
			why: "npm passes SIGTERM on to node, which is not PID 1: the default action ends it",
		},
	}}
}

func python() *shape {
	return &shape{name: "python", what: "Python", programs: map[behaviour]program{
		inTime:  {image: bed.RuntimesImage, command: command("python3", "/everyday/server.py", "in-time"), why: "its handler takes two seconds"},
		tooSlow: {image: bed.RuntimesImage, command: command("python3", "/everyday/server.py", "too-slow"), own: true, burns: slow, why: "its handler does not end"},
		noHandler: {
			image: bed.RuntimesImage, command: command("python3", "/everyday/server.py", "no-handler"),
			burns: dropped, why: "Python has no handler for SIGTERM",
		},
	}}
}

func gunicorn() *shape {
	serve := command("gunicorn", "--bind=:8080", "--workers=2", "--timeout=100000", "--graceful-timeout=100000", "app:app")
	return &shape{name: "gunicorn", what: "gunicorn with two workers", port: 8080, directory: "/everyday", programs: map[behaviour]program{
		inTime:  {image: bed.RuntimesImage, command: serve, why: "its workers have nothing to do"},
		tooSlow: {image: bed.RuntimesImage, command: serve, client: web, burns: slow, why: "a worker has a request that is not done"},
	}}
}

func celery() *shape {
	work := command("python3", "-m", "celery", "-A", "tasks", "worker", "--concurrency=1")
	return &shape{name: "celery", what: "celery worker", directory: "/everyday", programs: map[behaviour]program{
		inTime: {image: bed.RuntimesImage, command: work, env: map[string]string{"C_FORCE_ROOT": "1"}, why: "its worker has no task"},
		tooSlow: {
			image: bed.RuntimesImage, command: work, env: map[string]string{"C_FORCE_ROOT": "1", "TASK": "slow"},
			burns: slow, why: "the warm shutdown waits for a task",
		},
	}}
}

// nginx is stopped by SIGQUIT, as its public image is.
func nginx() *shape {
	serve := command("nginx", "-c", "/everyday/nginx.conf")
	return &shape{name: "nginx", what: "nginx, stopped by SIGQUIT", port: 8080, programs: map[behaviour]program{
		inTime:  {image: bed.ServersQuit, command: serve, why: "it has no connection"},
		tooSlow: {image: bed.ServersQuit, command: serve, client: web, burns: slow, why: "it waits for a slow download"},
	}}
}

// phpFPM is stopped by SIGQUIT, as its public image is.
func phpFPM() *shape {
	serve := command("php-fpm8.2", "-y", "/everyday/php-fpm.conf")
	return &shape{name: "php-fpm", what: "php-fpm, stopped by SIGQUIT", port: 9000, programs: map[behaviour]program{
		inTime: {image: bed.ServersQuit, command: serve, why: "it has no request"},
		tooSlow: {
			image: bed.ServersQuit, command: serve, client: &client{sends: bed.FastCGIRequest},
			burns: slow, why: "process_control_timeout lets a script go on",
		},
	}}
}

func postgres() *shape {
	return &shape{name: "postgres", what: "PostgreSQL, stopped by SIGTERM", port: 5432, programs: map[behaviour]program{
		inTime: {image: bed.ServersImage, command: bed.PostgreSQL, why: "it has no session"},
		tooSlow: {
			image: bed.ServersImage, command: bed.PostgreSQL, client: &client{sends: bed.PostgreSQLSession},
			burns: slow, why: "SIGTERM is a smart shutdown, which waits for a session",
		},
	}}
}

func redis() *shape {
	serve := command("redis-server", "--protected-mode", "no", "--save", "", "--repl-diskless-sync-delay", "0", "--shutdown-timeout", "100000")
	return &shape{name: "redis", what: "Redis", port: 6379, programs: map[behaviour]program{
		inTime: {image: bed.ServersImage, command: serve, why: "it has no replica"},
		tooSlow: {
			image: bed.ServersImage, command: serve, client: &client{sends: "SYNC\r\n", then: "SET a 1\r\nQUIT\r\n"},
			burns: slow, why: "it waits for a replica that lags behind",
		},
		noHandler: {image: bed.ServersQuit, command: serve, burns: mismatch, why: "the image's stop signal is SIGQUIT, Redis handles SIGTERM"},
	}}
}

func broker() *shape {
	return &shape{name: "broker", what: "a broker, NATS", port: 4222, programs: map[behaviour]program{
		inTime: {image: bed.ServersImage, command: command("nats-server", "-c", "/everyday/nats.conf"), why: "it closes its connections"},
		tooSlow: {
			image: bed.ServersImage, command: command("/everyday/broker.sh"), client: &client{sends: "CONNECT {}\r\nPING\r\n"},
			burns: slow, why: "its entrypoint asks for lame duck mode, which takes half an hour",
		},
	}}
}

// sidecar is stopped by SIGUSR1, as HAProxy's public image is.
func sidecar() *shape {
	serve := command("haproxy", "-W", "-db", "-f", "/everyday/haproxy.cfg")
	return &shape{
		name: "sidecar", what: "a proxy as sidecar, HAProxy", standIn: "Envoy", container: "proxy", port: 8080,
		programs: map[behaviour]program{
			inTime:  {image: bed.ServersUserOne, command: serve, why: "it has no connection"},
			tooSlow: {image: bed.ServersUserOne, command: serve, client: &client{sends: bed.HalfRequest}, burns: slow, why: "the soft stop waits for a connection"},
		},
	}
}

func logAgent() *shape {
	serve := command("rsyslogd", "-n", "-iNONE", "-f", "/everyday/rsyslog.conf")
	return &shape{name: "log-agent", what: "a log agent, rsyslog", container: "log", port: 5140, programs: map[behaviour]program{
		inTime:    {image: bed.ServersImage, command: serve, why: "its queue is empty"},
		tooSlow:   {image: bed.ServersImage, command: serve, client: &client{sends: "slow\nslow\nslow\n"}, burns: slow, why: "its queue is not passed on"},
		noHandler: {image: bed.ServersImage, command: command("/everyday/tail.sh"), burns: dropped, why: "tail -F is PID 1"},
	}}
}

func runner() *shape {
	return &shape{name: "ci-runner", what: "a CI runner", standIn: "GitLab's or GitHub's", programs: map[behaviour]program{
		inTime:    {image: bed.RuntimesImage, command: command("/everyday/runner.sh", "in-time"), why: "its trap tells the job to stop"},
		tooSlow:   {image: bed.RuntimesImage, command: command("/everyday/runner.sh", "too-slow"), own: true, burns: slow, why: "its trap lets the job come to its end"},
		noHandler: {image: bed.RuntimesImage, command: command("/everyday/tail.sh"), burns: dropped, why: "what keeps a job's container alive, tail -f, is PID 1"},
	}}
}

func wrapper() *shape {
	wrapped := func(how string) []string { return command("/wrapper", "python3", "/everyday/server.py", how) }
	return &shape{name: "wrapper", what: "a workflow's step", standIn: "Argo's emissary, Tekton's entrypoint", programs: map[behaviour]program{
		inTime:    {image: bed.RuntimesImage, command: wrapped("in-time"), why: "the wrapper passes SIGTERM on"},
		tooSlow:   {image: bed.RuntimesImage, command: wrapped("too-slow"), own: true, burns: below("python3"), why: "the wrapper waits for its program"},
		noHandler: {image: bed.RuntimesImage, command: wrapped("no-handler"), why: "the program is not PID 1: the default action ends it"},
	}}
}

// nested is a container in the pod's container, with a PID namespace of its own.
func nested() *shape {
	run := command("/everyday/nested.sh")
	how := func(how string) map[string]string { return map[string]string{"HOW": how} }
	return &shape{name: "nested", what: "a container in a container, by crun", file: "/tmp/bundle/rootfs/ready", privileged: true, programs: map[behaviour]program{
		inTime:  {image: bed.RuntimesImage, command: run, env: how("in-time"), why: "crun passes SIGTERM on"},
		tooSlow: {image: bed.RuntimesImage, command: run, env: how("too-slow"), own: true, burns: below("python3"), why: "the program in the inner container is slow"},
		noHandler: {
			image: bed.RuntimesImage, command: run, env: how("no-handler"),
			// The inner program is PID 1 of its namespace, and not the container's first process, which waits for it.
			burns: []told{{cause: "SignalDroppedByPID1", says: []string{"python3"}}, {cause: "SlowShutdown", says: []string{"python3"}}},
			why:   "the program in the inner container is PID 1 there",
		},
	}}
}

func s6() *shape {
	how := func(how string) map[string]string { return map[string]string{"HOW": how} }
	run := command("/everyday/s6.sh")
	return &shape{name: "s6", what: "s6 with one service", programs: map[behaviour]program{
		inTime:    {image: bed.ServersImage, command: run, env: how("in-time"), why: "s6 stops its service"},
		tooSlow:   {image: bed.ServersImage, command: run, env: how("too-slow"), own: true, burns: below("python3"), why: "s6 waits for its service"},
		noHandler: {image: bed.ServersImage, command: run, env: how("no-handler"), why: "the service is not PID 1: the default action ends it"},
	}}
}

func supervisor() *shape {
	how := func(how string) map[string]string { return map[string]string{"HOW": how} }
	run := command("supervisord", "-c", "/everyday/supervisord.conf")
	return &shape{name: "supervisord", what: "supervisord with one program", programs: map[behaviour]program{
		inTime:    {image: bed.RuntimesImage, command: run, env: how("in-time"), why: "supervisord stops its program"},
		tooSlow:   {image: bed.RuntimesImage, command: run, env: how("too-slow"), own: true, burns: below("python3"), why: "supervisord waits for its program"},
		noHandler: {image: bed.RuntimesImage, command: run, env: how("no-handler"), why: "the program is not PID 1: the default action ends it"},
	}}
}

func cron() *shape {
	return &shape{name: "cron", what: "cron with a job", file: "/run/crond.pid", programs: map[behaviour]program{
		inTime:    {image: bed.ServersImage, command: command("tini", "--", "cron", "-f"), why: "cron is not PID 1: the default action ends it"},
		tooSlow:   {image: bed.ServersImage, command: command("/everyday/cron.sh"), own: true, burns: slow, why: "its entrypoint waits for a job"},
		noHandler: {image: bed.ServersImage, command: command("cron", "-f"), burns: dropped, why: "cron has no handler for SIGTERM"},
	}}
}

func job() *shape {
	return &shape{name: "job", what: "a batch job in Python", programs: map[behaviour]program{
		inTime: {image: bed.RuntimesImage, command: command("python3", "/everyday/job.py", "in-time"), why: "an item takes two seconds"},
		tooSlow: {
			image: bed.RuntimesImage, command: command("python3", "/everyday/job.py", "too-slow"),
			own: true, burns: slow, why: "an item is longer than the grace period",
		},
		noHandler: {
			image: bed.RuntimesImage, command: command("python3", "/everyday/job.py", "no-handler"),
			burns: dropped, why: "Python has no handler for SIGTERM",
		},
	}}
}
