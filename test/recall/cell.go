package main

import (
	"slices"
	"strings"
)

// A shape is a kind of image that many clusters run.
type shape struct {
	name, what string
	// standIn says what the program stands in for, when it is not the real one.
	standIn string
	// container is the name of the container in question; "" is main, which the pod has alone. A pod with another
	// name for it has a main container beside it, which ends immediately.
	container string
	// port is what the program listens on, 0 for one that tells by a file that it runs: file, or /ready.
	port int
	file string
	// privileged reports whether it needs CAP_SYS_ADMIN.
	privileged bool
	// init reports whether the container is an init container, which has no hooks, and before which the pod's own container waits.
	init bool
	// crashes reports whether a sidecar is beside it that exits immediately, again and again.
	crashes bool
	// again reports whether the pod is deleted a second time, with a shorter grace period.
	again bool
	// directory is the working directory, "" for the root.
	directory string
	// programs has the behaviours that the shape can have. Shell is made of inTime.
	programs map[behaviour]program
}

// A program is what the container runs.
type program struct {
	image   string
	command []string
	env     map[string]string
	// client is what holds a connection open, nil for none.
	client *client
	// burns lists the causes that are true of it; none is a program that ends in time.
	burns []told
	// own reports whether only a change of the program itself would help: it has no setting for how long it waits.
	own bool
	// why says what the program does with its stop signal, for who reads the table of cells.
	why string
}

// A client connects to the shape's port before the deletion, sends something and waits for an end that does not come.
type client struct {
	sends string
	// then is sent over a connection of its own, which is closed, when the first one has been there for a while.
	then string
}

// A told is what the agent may say: the cause, and words that have to be in its message beside the container.
type told struct {
	cause string
	says  []string
}

// A behaviour is what the program does when it is asked to stop.
type behaviour string

const (
	inTime    behaviour = "in time"
	tooSlow   behaviour = "too slow"
	noHandler behaviour = "no handler"
	shell     behaviour = "shell without exec"
)

var behaviours = []behaviour{inTime, tooSlow, noHandler, shell}

// A hook is the container's preStop hook.
type hook string

const (
	noHook       hook = "none"
	shellSleep   hook = "sh -c sleep"
	kubeletSleep hook = "kubelet's sleep"
	drain        hook = "drain script"
)

var hooks = []hook{noHook, shellSleep, kubeletSleep, drain}

// A cell is one pod: a shape, a hook and a behaviour.
type cell struct {
	shape     *shape
	hook      hook
	behaviour behaviour
	// remedy is what the cell's pod is changed by, nil for the pod as it is.
	remedy *remedy
}

// name is the pod's.
func (c cell) name() string {
	short := strings.NewReplacer("sh -c sleep", "sh", "kubelet's sleep", "sleep", "drain script", "drain", "in time", "ends", "too slow", "slow",
		"no handler", "nohandler", "shell without exec", "shell")
	name := c.shape.name + "-" + short.Replace(string(c.hook)) + "-" + short.Replace(string(c.behaviour))
	if c.remedy != nil {
		name += "-remedied"
	}
	return name
}

// container is the name of the container in question.
func (c cell) container() string {
	if c.shape.container == "" {
		return mainContainer
	}
	return c.shape.container
}

// mainContainer is the name of a pod's first container.
const mainContainer = "main"

// program is what the cell's container runs.
func (c cell) program() program {
	p := c.shape.program(c.behaviour)
	if c.remedy != nil {
		p = c.remedy.program
	}
	return p
}

// program returns what runs with a behaviour. A shell that was not replaced by its program is PID 1, which has no
// trap: the kernel drops what the runtime sends to it, whatever the program below it would do.
func (s *shape) program(b behaviour) program {
	if b != shell {
		return s.programs[b]
	}
	p := s.programs[inTime]
	var words []string
	for _, w := range p.command {
		words = append(words, "'"+w+"'")
	}
	p.command = []string{"sh", "-c", strings.Join(words, " ") + "; true"}
	p.burns = []told{{cause: "ShellPID1NoTrap", says: []string{"shell sh"}}}
	p.why = "the shell is PID 1 and has no trap"
	return p
}

// can reports whether the shape has a behaviour.
func (s *shape) can(b behaviour) bool {
	_, ok := s.programs[b]
	return ok || b == shell
}

// accepts lists what is true of the cell, nothing for one that ends in time, and says why.
func (c cell) accepts() ([]told, string) {
	p := c.program()
	if c.remedy != nil {
		return nil, "it was remedied: " + c.remedy.name
	}
	if c.hook == drain && p.client != nil {
		// The script waits until the connection is closed, which nobody does before SIGTERM.
		return []told{{cause: "PreStopHookRunning", says: []string{"preStop hook"}}}, "the hook waits for a connection that stays"
	}
	return p.burns, p.why
}

// pairwise lists cells in which each two of a shape, a hook and a behaviour that can come together do, and a few more
// without a hook, of the shapes that the rest has not in them.
func pairwise(shapes []*shape) []cell {
	var out []cell
	for i, s := range shapes {
		for j, h := range hooks {
			b := behaviours[(i+j)%len(behaviours)]
			if !s.can(b) {
				b = tooSlow // each shape has it
			}
			if s.init {
				h = noHook
			}
			if c := (cell{shape: s, hook: h, behaviour: b}); !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	for i, s := range shapes {
		for _, b := range []behaviour{tooSlow, noHandler} {
			c := cell{shape: s, hook: noHook, behaviour: b}
			if i%2 == 0 && s.can(b) && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}
