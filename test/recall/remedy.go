package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// A remedy is what an Event says to do first about an image or a manifest, done to the cell's pod.
type remedy struct {
	// name is that of the words (scenario.AdviceWords).
	name    string
	program program
	// hookLimit is for how many seconds the drain script may run, "" without a limit.
	hookLimit string
	// fast says that the program ends without its handler.
	fast bool
}

// limit is within how many seconds a program has to end that is given a limit. With a hook of 5 s before it, that is within two thirds of the
// grace period, also on a busy node.
const limit = "2"

// A doing is how a remedy is done. It is chosen by the words of the Event, and by nothing that is known of the cell.
type doing struct {
	name  string // of the words
	words *regexp.Regexp
	// do returns what the cell's pod is then; ok is false where it cannot be done to what the cell runs.
	do func(c cell) (r remedy, ok bool)
}

// doings are in the order in which they are looked for: what ends a program cleanly before what only ends it.
var doings = []doing{
	{"exec in a pipeline", regexp.MustCompile(`exec PROGRAM > >\(tee`), pipelineWithExec},
	{"exec in the script", regexp.MustCompile(`with exec\b`), execInScript},
	{"trap that passes the signal on", regexp.MustCompile(`trap 'kill -TERM`), passOn},
	{"trap that exits", regexp.MustCompile(`trap 'exit`), trapThatExits},
	{"STOPSIGNAL of the image", regexp.MustCompile(`STOPSIGNAL|stop signal to SIGTERM`), stopSignal},
	{"another stop signal", regexp.MustCompile(`stop signal to SIGINT`), func(c cell) (remedy, bool) {
		return changed(c, func(p *program) bool { p.image = bed.ServersInt; return true })
	}},
	{"handle the signal", regexp.MustCompile(`handle SIG|add a listener`), handler},
	{"tini or dumb-init", regexp.MustCompile(`\btini\b`), underInit},
	{"a limit of the program", regexp.MustCompile(scenario.AdviceWords[ownLimitWords]), ownLimit},
	{"a limit of the hook", regexp.MustCompile(`give up in time|shorten the`), func(c cell) (remedy, bool) {
		return remedy{program: c.program(), hookLimit: limit}, c.hook == drain && c.behaviour != tooSlow // else the program is too slow, too
	}},
}

// ownLimitWords is the key of the words about limits that programs have themselves.
const ownLimitWords = "a limit of the program, or another option"

// remedied returns the cell as it is when somebody has done what an Event says first. ok is false where its words name nothing that can be done
// to this image or manifest, and why says so.
func (c cell) remedied(first string) (after cell, ok bool, why string) {
	named := ""
	for _, d := range doings {
		if !d.words.MatchString(first) {
			continue
		}
		if r, ok := d.do(c); ok {
			r.name = d.name
			c.remedy = &r
			return c, true, ""
		}
		named = d.name
	}
	if named != "" {
		return c, false, named + ": it cannot be done to what runs here"
	}
	return c, false, "its words name nothing that can be done"
}

// changed is the cell's program with a change.
func changed(c cell, change func(p *program) bool) (remedy, bool) {
	p := c.program()
	p.command = slices.Clone(p.command)
	ok := change(&p)
	return remedy{program: p}, ok
}

// script changes the last word of sh -c or bash -c.
func script(c cell, change func(text string) string) (remedy, bool) {
	return changed(c, func(p *program) bool {
		if len(p.command) != 3 || p.command[1] != "-c" {
			return false
		}
		text := change(p.command[2])
		is := text != p.command[2]
		p.command[2] = text
		return is
	})
}

var teed = regexp.MustCompile(`^(?:trap '[^']*' TERM; )?(.*) \| tee (\S+)$`)

func pipelineWithExec(c cell) (remedy, bool) {
	r, ok := script(c, func(text string) string { return teed.ReplaceAllString(text, "exec $1 > >(tee $2) 2>&1") })
	if ok {
		r.program.command[0] = "bash"
	}
	return r, ok
}

// last is the last command of a script that does something.
var last = regexp.MustCompile(`^((?:.*; )?)([^;]+); true$`)

func execInScript(c cell) (remedy, bool) {
	if c.behaviour == shell { // of which the program's words may have a script of their own
		return script(c, func(text string) string { return "exec " + strings.TrimSuffix(text, "; true") })
	}
	if r, ok := script(c, func(text string) string { return last.ReplaceAllString(text, "${1}exec $2") }); ok {
		return r, true
	}
	// A daemon that a script has put into the background is started in the foreground.
	return script(c, func(text string) string {
		return regexp.MustCompile(`^\((?:setsid )?(.*) &\); .*$`).ReplaceAllString(text, "exec $1")
	})
}

// passOn puts all commands of a script into the background, passes the signal on to them and waits.
func passOn(c cell) (remedy, bool) {
	return script(c, func(text string) string {
		commands := strings.Split(strings.TrimSuffix(text, "; true"), "; ")
		names, out := "", ""
		for i, command := range commands {
			out += fmt.Sprintf("%s & p%d=$!; ", strings.TrimSuffix(command, " &"), i)
			names += fmt.Sprintf(" $p%d", i)
		}
		return fmt.Sprintf("%strap 'kill -TERM%s' TERM; wait%s; wait%s", out, names, names, names)
	})
}

func trapThatExits(c cell) (remedy, bool) {
	return script(c, func(text string) string {
		return "trap 'exit 143' TERM; " + regexp.MustCompile(`\b(sleep \d+)\b`).ReplaceAllString(text, "$1 & wait")
	})
}

// stopSignal is the image with the stop signal that its program handles.
func stopSignal(c cell) (remedy, bool) {
	return changed(c, func(p *program) bool {
		is := p.image == bed.ServersQuit
		p.image = bed.ServersImage
		return is
	})
}

// handler is the program with a handler, where the shape has one.
func handler(c cell) (remedy, bool) {
	p, ok := c.shape.programs[inTime]
	if !ok || c.behaviour != noHandler || p.command[0] == "tini" || p.image != c.program().image {
		return remedy{}, false
	}
	return remedy{program: p}, p.command[0] == c.program().command[0]
}

func underInit(c cell) (remedy, bool) {
	r, _ := changed(c, func(p *program) bool {
		p.command = append([]string{"tini", "--"}, p.command...)
		return true
	})
	r.fast = true
	return r, true
}

// ownLimit gives a program the limit that it has itself, as test/scenario/limits.go does.
func ownLimit(c cell) (remedy, bool) {
	return changed(c, func(p *program) bool {
		switch {
		case p.command[0] == "nginx":
			p.command = command("sh", "-c", "sed 's/^events/worker_shutdown_timeout "+limit+"s; events/' /everyday/nginx.conf >/tmp/nginx.conf; exec nginx -c /tmp/nginx.conf")
		case p.command[0] == "haproxy":
			p.command = command("sh", "-c", "{ echo global; echo '    hard-stop-after "+limit+"s'; cat /everyday/haproxy.cfg; } >/tmp/haproxy.cfg; "+
				"exec haproxy -W -db -f /tmp/haproxy.cfg")
		case p.command[0] == "php-fpm8.2":
			p.command = command("sh", "-c", "sed 's/^process_control_timeout.*/process_control_timeout = "+limit+"s/' /everyday/php-fpm.conf "+
				">/tmp/php-fpm.conf; exec php-fpm8.2 -y /tmp/php-fpm.conf")
		case p.command[0] == "gunicorn":
			for i, word := range p.command {
				if strings.HasPrefix(word, "--graceful-timeout=") {
					p.command[i] = "--graceful-timeout=" + limit
				}
			}
		case slices.Contains(p.command, "celery"):
			p.command = append(p.command, "--time-limit="+limit)
		case p.command[0] == "node":
			p.command = command("node", "-e", "const server = require('http').createServer((request, response) => { response.writeHead(200); response.write('.'); });\n"+
				"process.on('SIGTERM', () => { server.close(() => process.exit(0)); setTimeout(() => server.closeAllConnections(), "+limit+"000); });\n"+
				"server.listen(8080);")
		default:
			return false
		}
		return true
	})
}

// firstOf is what an Event says to do first.
var firstOf = regexp.MustCompile(`(?s)\bFirst: (.*?)(?:\. Avoid: |\. Force delete: |\. Fix and more: |\. More: |$)`)

// works says what is wrong with a pod that was remedied, "" if its program ended by itself, within two thirds of its grace period, and as it
// does where it has nothing to do: with the exit code that its handler gives.
func works(c cell, e ending, handled int32) string {
	switch {
	case e.Odd != "":
		return e.Odd
	case e.Killed:
		return "it was killed at the deadline"
	case e.After > grace*time.Second*2/3:
		return fmt.Sprintf("it ended after %.0f s, more than two thirds of %d s", e.After.Seconds(), grace)
	case c.remedy.fast || c.remedy.hookLimit != "":
		return ""
	case e.Code != handled:
		return fmt.Sprintf("it ended with exit code %d, and its handler gives %d", e.Code, handled)
	}
	return ""
}
