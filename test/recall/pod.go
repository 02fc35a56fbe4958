package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// grace is every pod's grace period in seconds, on a node of ordinary speed: enough for a hook and a program that
	// ends in time.
	grace = 15
	// hookSleep is for how many seconds a hook sleeps.
	hookSleep = 5
	// lived is for how many seconds a pod runs before it is deleted: most pods have run for hours, and what a program does with
	// signals has to be known from before.
	lived = 45
)

// scenario is the cell as something that the bed can run.
func (c cell) scenario() bed.Scenario {
	p := c.program()
	seconds := int64(grace)
	main := corev1.Container{Name: c.container(), Image: p.image, Command: p.command, WorkingDir: c.shape.directory, Lifecycle: c.lifecycle()}
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		main.Env = append(main.Env, corev1.EnvVar{Name: name, Value: p.env[name]})
	}
	if c.shape.privileged {
		main.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
	}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: &seconds, Containers: []corev1.Container{main}}
	switch {
	case c.shape.init:
		waits := corev1.Container{Name: mainContainer, Image: bed.BusyboxImage, Command: []string{"sleep", "1"}}
		spec.InitContainers, spec.Containers = spec.Containers, []corev1.Container{waits}
	case c.shape.crashes:
		spec.Containers = append(spec.Containers, corev1.Container{Name: crashes, Image: bed.BusyboxImage, Command: []string{"false"}})
	case c.shape.container != "":
		beside := corev1.Container{Name: mainContainer, Image: bed.BusyboxImage, Command: []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"}}
		spec.Containers = append([]corev1.Container{beside}, spec.Containers...)
	}
	return bed.Scenario{
		Name: c.name(),
		Fault: bed.Fault{
			Pod:      spec,
			Break:    c.await,
			Starting: c.shape.init || c.shape.crashes, // which never all run
		},
		// The grace period becomes no shorter on a quick node.
		Want: bed.Want{When: bed.InGrace},
	}
}

// crashes is the name of the sidecar that crashes.
const crashes = "crashes"

// lifecycle is the container's hook.
func (c cell) lifecycle() *corev1.Lifecycle {
	executes := func(command ...string) *corev1.Lifecycle {
		return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	}
	switch c.hook {
	case shellSleep:
		return executes("sh", "-c", "sleep "+strconv.Itoa(hookSleep))
	case kubeletSleep:
		return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: hookSleep}}}
	case drain:
		script := []string{"/everyday/drain.sh", strconv.Itoa(c.shape.port)}
		if c.remedy != nil && c.remedy.hookLimit != "" {
			script = append([]string{"timeout", c.remedy.hookLimit}, script...)
		}
		return executes(script...)
	}
	return nil
}

// await waits until the program is ready, starts its client, and lets the pod live for a while.
func (c cell) await(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	if err := bed.OnNode(c.ready())(ctx, n, p); err != nil {
		return fmt.Errorf("wait until the program is ready: %w", err)
	}
	if client := c.program().client; client != nil {
		if err := bed.OnNode(client.script(p.Status.PodIP, c.shape.port))(ctx, n, p); err != nil {
			return fmt.Errorf("start the client: %w", err)
		}
	}
	return bed.OnNode(fmt.Sprintf("sleep %d", lived))(ctx, n, p)
}

// ready is a script that waits until the container's first process runs what it has to: until somebody listens on
// the port, or the file is there. The container is the one that has /everyday.
func (c cell) ready() string {
	is := "[ -e /proc/$p/root" + cmp.Or(c.shape.file, "/ready") + " ]"
	if c.shape.port != 0 {
		is += fmt.Sprintf(` || cat /proc/$p/net/tcp /proc/$p/net/tcp6 | awk '$4=="0A" && $2~/:%04X$/{found=1} END{exit !found}'`, c.shape.port)
	}
	return `first() {
  for t in $(tasks); do
    [ -e /proc/$t/root/everyday ] || continue
    awk '$1=="Tgid:"{group=$2} $1=="Pid:"{pid=$2} $1=="NSpid:"{exit !(pid==group && NF==3 && $NF==1)}' /proc/$t/status || continue
    echo $t
    return
  done
}
for i in $(seq 120); do
  p=$(first)
  if [ -n "$p" ] && { ` + is + `; }; then exit 0; fi
  sleep 1
done
echo "it is not after two minutes" >&2
exit 1`
}

// script starts the client on the node.
func (c *client) script(address string, port int) string {
	connect := fmt.Sprintf("until exec 3<>/dev/tcp/%s/%d; do sleep 1; done; ", address, port)
	// A program that has just begun to listen may end the connection.
	s := "setsid bash -c 'while [ $SECONDS -lt 20 ]; do " + connect + `printf "` + octal(c.sends) + `" >&3; cat <&3 >/dev/null; sleep 1; done'` +
		" </dev/null >/dev/null 2>&1 &\n"
	if c.then != "" {
		s += "sleep 3\ntimeout 20 bash -c '" + connect + `printf "` + octal(c.then) + `" >&3; cat <&3 >/dev/null'` + "\n"
	}
	return s
}

// octal writes each byte as printf(1) reads it, whatever it means to a shell.
func octal(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}
