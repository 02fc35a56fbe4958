package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// maxMemory is what the agent's container is given while it is attacked, which is less than the DaemonSet gives it: the
	// kernel counts in it what it takes back when that is used up, and kills in it when that does not suffice.
	maxMemory = 110 << 20
	// rounds is for how long the agent is watched while it is attacked: five of its
	// longest periods.
	rounds = 50 * time.Second
	// An attack is given this long to begin, and to end.
	attackTakes = 10 * time.Minute
	// victimLater is how much later than without an attack the verdict about somebody else's pod may come: two of the agent's longest
	// periods. victimWithin is for how long it is waited for.
	victimLater  = 20 * time.Second
	victimWithin = 3 * time.Minute
	// recovery is after an attack that leaves nothing behind.
	recovery = 2 * time.Minute
)

// An attacker is something that a tenant may do to the agent of its node.
type attacker struct {
	what string
	// pods terminate while the agent is watched; nil for none.
	pods func(*bed.Node) []*corev1.Pod
	// beside are pods that run as the agent has started, IP being the agent's address in their command; nil for none.
	beside func(*bed.Node) []*corev1.Pod
	// run is done on the node as it begins, IP being the agent's; "" for nothing.
	run string
	// server are arguments with which the API server is started meanwhile.
	server []string
	// most is how much memory the agent's container has; 0 for maxMemory.
	most int64
	// recovers reports whether it is also measured how soon the agent is as before. Of one that is manifold, the verdict about
	// somebody else's pod may take twice its time.
	recovers, manifold bool
}

// nothing is without an attack.
var nothing = attacker{what: "nothing: one pod that waits for SIGKILL", pods: func(n *bed.Node) []*corev1.Pod {
	return []*corev1.Pod{attackPod(n, 0, bed.BusyboxImage, "sleep", "3600")}
}}

// memoryAttackers take the agent's memory.
var memoryAttackers = []attacker{
	{what: "8,000 connections to its port", run: `bash -c 'ulimit -n 9000; for i in $(seq 8000); do exec {fd}<>/dev/tcp/IP/9732; done 2>/dev/null; sleep 40' >/dev/null 2>&1 &`,
		pods: func(n *bed.Node) []*corev1.Pod {
			return []*corev1.Pod{attackPod(n, 0, bed.BusyboxImage, "sleep", "3600")}
		}},
	// A native node's PIDs are this machine's, which has 32,768 of them by default.
	{what: "20,000 threads in a pod", pods: func(n *bed.Node) []*corev1.Pod {
		return []*corev1.Pod{attackPod(n, 0, bed.ProgramsImage, "python3", "-c",
			"import threading,time; threading.stack_size(32768); [threading.Thread(target=time.sleep, args=(10**6,)).start() for _ in range(20000)]; time.sleep(10**6)")}
	}},
	{what: "20,000 mounts of 250 bytes, 64 processes that see them", pods: func(n *bed.Node) []*corev1.Pod {
		return []*corev1.Pod{mounter(n, 0, "20000x250")}
	}},
	{what: "the same in four pods, names of 4,000 bytes", pods: func(n *bed.Node) []*corev1.Pod {
		return []*corev1.Pod{mounter(n, 0, "20000x4000"), mounter(n, 1, "20000x4000"), mounter(n, 2, "20000x4000"), mounter(n, 3, "20000x4000")}
	}},
	{what: "450 processes that call themselves shims, with command lines of 2 MB", pods: func(n *bed.Node) []*corev1.Pod {
		return []*corev1.Pod{attackPod(n, 0, bed.BusyboxImage, "sleep", "3600"), attackPod(n, 1, bed.VictimImage, "/victim", "shims", "450x2000000")}
	}},
	// The API server takes half a minute for 190,000 in one pod, and gives up.
	{what: "32 terminating pods with 60,000 finalizers each", pods: func(n *bed.Node) []*corev1.Pod {
		var pods []*corev1.Pod
		for i := range 32 {
			p := largePod(n, i, 0)
			for k := range 60_000 {
				p.Finalizers = append(p.Finalizers, fmt.Sprintf("a/%d", k))
			}
			pods = append(pods, p)
		}
		return pods
	}},
	{what: "110 terminating pods of 700 KB, and a capture", pods: func(n *bed.Node) []*corev1.Pod { return largePods(n, 7) }},
	{what: "110 terminating pods of 1.3 MiB, and a capture, no streaming lists", pods: func(n *bed.Node) []*corev1.Pod { return largePods(n, 13) },
		server: []string{"--feature-gates=WatchList=false"}, most: 96 << 20},
}

// starvers take the agent from others.
var starvers = []attacker{
	{what: "90 terminating pods with names of 1.3 MiB in their specification", pods: longNames, recovers: true},
	{what: "256 readers of /metrics that do not read, 250 terminating pods with names of 253 bytes", pods: longNamed, beside: readers, recovers: true},
	{what: "1,200 processes with 65,536 groups that call themselves shims", pods: grouped, recovers: true},
	{what: "1,000 terminating pods that a finalizer keeps", pods: finalized, recovers: true},
	{what: "the last four at once, on a node with 50 stuck pods", recovers: true, manifold: true, beside: readers, pods: func(n *bed.Node) []*corev1.Pod {
		all := slices.Concat(longNames(n), longNamed(n), grouped(n), finalized(n))
		grace := int64(1)
		return append(all, finalizedPods(n, 50, func(p *corev1.Pod, i int) {
			p.Name, p.Namespace, p.Spec.NodeSelector, p.Spec.TerminationGracePeriodSeconds = fmt.Sprintf("stuck-%d", i), namespace, nil, &grace
		})...)
	}},
}

// largePods returns pods whose objects have so many times 100 KiB.
func largePods(n *bed.Node, size int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range crowd {
		pods = append(pods, largePod(n, i, size))
	}
	return pods
}

// attack returns a function that measures the agent's memory and processor time, and what it tells of somebody else's pod, without
// an attack and while a tenant does its worst.
func attack(attackers []attacker) func(context.Context) ([]row, error) {
	return func(ctx context.Context) ([]row, error) {
		return measureAttacks(ctx, slices.Concat([]attacker{nothing}, attackers))
	}
}

func measureAttacks(ctx context.Context, attackers []attacker) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	node := c.Nodes[0]
	if err := bed.Images(ctx, c, []bed.Scenario{{Fault: bed.Fault{Pod: corev1.PodSpec{Containers: []corev1.Container{{Image: bed.ProgramsImage}}}}}}); err != nil {
		return nil, err
	}
	if err := bed.Install(ctx, c); err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, node); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, node.API.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
			metav1.ListOptions{}), disperse(ctx, node))
	}()
	var calm time.Duration // how long a verdict takes without an attack, which is the first
	for _, a := range attackers {
		progress("  %s", a.what)
		r, took, err := a.against(ctx, c, node, calm)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", a.what, err)
		}
		rows, calm = append(rows, r), cmp.Or(calm, took)
	}
	return rows, nil
}

// against measures with the API server that the attack wants. It returns how long the verdict about somebody else's pod took, too, which
// takes the time of calm without an attack; 0 when that is not known.
func (a *attacker) against(ctx context.Context, c *bed.Cluster, node *bed.Node, calm time.Duration) (r row, took time.Duration, err error) {
	if len(a.server) > 0 {
		if err := c.RestartAPIServer(ctx, a.server...); err != nil {
			return row{}, 0, err
		}
		defer func() { err = errors.Join(err, c.RestartAPIServer(context.WithoutCancel(ctx))) }()
	}
	victims := [2]string{}
	for i := range victims {
		if victims[i], err = makeVictim(ctx, node); err != nil {
			return row{}, 0, err
		}
	}
	r, took, err = a.measure(ctx, node, victims[0], calm)
	if err != nil || !a.recovers {
		return r, took, err
	}
	if err := sleep(ctx, recovery); err != nil {
		return r, took, err
	}
	after, err := verdictOn(ctx, node, victims[1])
	r.measured += fmt.Sprintf("; %s after it %s", recovery, after)
	r.met = r.met && after.reason == victimCause && after.took <= calm+victimLater
	return r, took, err
}

// newAgent replaces the agent of a node, limits its memory, and returns its pod.
func newAgent(ctx context.Context, node *bed.Node, most int64) (agent *corev1.Pod, err error) {
	old, err := node.AgentPod(ctx)
	if err != nil {
		return nil, err
	}
	if err := node.API.CoreV1().Pods(node.Agents.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	if err := bed.Until(ctx, "the new agent", func() (bool, string) {
		agent, err = node.AgentPod(ctx)
		return err == nil && agent.UID != old.UID && agent.Status.ContainerStatuses[0].Ready, "not there yet"
	}); err != nil {
		return nil, err
	}
	if _, err := node.Exec(ctx, memory+fmt.Sprintf("echo %d >$limit", most)); err != nil {
		return nil, fmt.Errorf("limit the agent's memory: %w", err)
	}
	return agent, nil
}

// measure attacks an agent that has just been started, and watches it and what it tells of a victim.
func (a *attacker) measure(ctx context.Context, node *bed.Node, victim string, calm time.Duration) (r row, took time.Duration, err error) {
	var made []*corev1.Pod
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attackTakes)
		defer cancel()
		err = errors.Join(err, endAttack(ctx, node, made))
	}()
	begins, cancel := context.WithTimeout(ctx, attackTakes)
	defer cancel()
	most := cmp.Or(a.most, maxMemory)
	var agent *corev1.Pod
	if a.manifold { // beside so many pods, no kubelet replaces the agent's in ten minutes
		if agent, err = newAgent(begins, node, most); err != nil {
			return row{}, 0, err
		}
	}
	pods := a.pods(node)
	made = append(made, pods...)
	if err := makeAttackers(begins, node, pods); err != nil {
		return row{}, 0, err
	}
	for _, p := range pods {
		if err := node.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			return row{}, 0, err
		}
	}
	// A new agent has to list what there is, and its peak is that of the attack.
	if !a.manifold {
		if agent, err = newAgent(begins, node, most); err != nil {
			return row{}, 0, err
		}
	}
	if a.run != "" {
		if _, err := node.Exec(ctx, strings.ReplaceAll(a.run, "IP", agent.Status.PodIP)); err != nil {
			return row{}, 0, err
		}
	}
	if a.beside != nil {
		beside := a.beside(node)
		made = append(made, beside...)
		for _, p := range beside {
			for i, word := range p.Spec.Containers[0].Command {
				p.Spec.Containers[0].Command[i] = strings.ReplaceAll(word, "IP", agent.Status.PodIP)
			}
		}
		if err := makeAttackers(begins, node, beside); err != nil {
			return row{}, 0, err
		}
	}
	before, _, err := usages(ctx, node)
	if err != nil {
		return row{}, 0, err
	}
	begun := time.Now()
	if err := sleep(ctx, rounds/2); err != nil {
		return row{}, 0, err
	}
	told, err := verdictOn(ctx, node, victim)
	if err != nil {
		return row{}, 0, err
	}
	capture := ""
	if len(pods) > 1 {
		if _, err := node.Capture(ctx, pods[0].Name, bed.ShortWait); err != nil {
			capture = "; the capture failed: " + err.Error()
		}
	}
	if err := sleep(ctx, rounds/2); err != nil {
		return row{}, 0, err
	}
	after, _, err := usages(ctx, node)
	if err != nil {
		return row{}, 0, err
	}
	watched := time.Since(begun)
	now, err := node.AgentPod(ctx)
	if err != nil {
		return row{}, 0, err
	}
	restarts := now.Status.ContainerStatuses[0].RestartCount
	taken, err := takenBy(ctx, node)
	if err != nil {
		return row{}, 0, err
	}
	metrics, err := node.MetricsOnNode(ctx, now.Status.PodIP)
	if err != nil {
		return row{}, 0, err
	}
	period, err := value(metrics, "nodeagent_round_period_seconds")
	if err != nil {
		return row{}, 0, fmt.Errorf("%w\n%.200s", err, metrics)
	}
	sum, err := value(metrics, "nodeagent_gather_duration_seconds_sum")
	if err != nil {
		return row{}, 0, err
	}
	count, err := value(metrics, "nodeagent_gather_duration_seconds_count")
	if err != nil {
		return row{}, 0, err
	}
	wrong, err := wrongVerdicts(ctx, node)
	if err != nil {
		return row{}, 0, err
	}
	lost, err := lostTo(ctx, node, now, metrics)
	if err != nil {
		return row{}, 0, err
	}
	within := calm + victimLater
	if a.manifold {
		within = 2 * calm
	}
	return row{
		what:   "Attack: " + a.what,
		target: fmt.Sprintf("%s suffice, no restart", mebibytes(most)),
		measured: fmt.Sprintf("peak %s, %d times at that limit, %d killed (RSS %s, own %s), %d restarts; "+
			"%.1f %% of a processor; a pod takes %.0f ms; period %.0f s; %s%s%s%s",
			mebibytes(taken.peak), taken.full, taken.killed, mebibytes(after.rss), mebibytes(after.anon), restarts,
			100*(after.cpu-before.cpu).Seconds()/watched.Seconds(), 1000*sum/max(count, 1), period, told, lost, wrong, capture),
		met: taken.peak <= most && taken.killed == 0 && restarts == 0 && capture == "" && wrong == "" &&
			told.reason == victimCause && (calm == 0 || told.took <= within),
	}, told.took, nil
}

// makeAttackers makes pods and waits until each runs, or the kubelet has refused it.
func makeAttackers(ctx context.Context, node *bed.Node, pods []*corev1.Pod) error {
	for _, p := range pods {
		if _, err := node.API.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return bed.Until(ctx, "the attack to begin", func() (bool, string) {
		list, err := node.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "attack"})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			p := &list.Items[i]
			ready := len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
			if !ready && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil {
				return false, p.Name + " is not ready"
			}
		}
		return true, ""
	})
}

// endAttack deletes the pods that attack, and waits until they have gone.
func endAttack(ctx context.Context, node *bed.Node, made []*corev1.Pod) error {
	if err := sideBySide(len(made), func(i int) error {
		pods, name := node.API.CoreV1().Pods(made[i].Namespace), made[i].Name
		_, patchErr := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = patchErr // it may have gone
		_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		return nil
	}); err != nil {
		return err
	}
	return bed.Until(ctx, "the attackers to go", func() (bool, string) {
		list, err := node.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "attack"})
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == 0, fmt.Sprintf("%d are there", len(list.Items))
	})
}

// victimCause is why a victim does not stop.
const victimCause = "SignalDroppedByPID1"

// makeVictim makes somebody else's pod, whose program has no handler for SIGTERM, and waits until it runs.
func makeVictim(ctx context.Context, node *bed.Node) (string, error) {
	p, grace := sleeper(node.Name, 0), int64((2 * attackTakes).Seconds())
	p.Name, p.GenerateName, p.Spec.TerminationGracePeriodSeconds = "", "victim-", &grace
	pods := node.API.CoreV1().Pods(namespace)
	p, err := pods.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, attackTakes)
	defer cancel()
	return p.Name, bed.Until(ctx, p.Name+" to run", func() (bool, string) {
		p, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, fmt.Sprint(err)
	})
}

// A told is what the agent tells of a victim, and how long after its deletion. The reason is "" for nothing.
type told struct {
	reason string
	took   time.Duration
}

func (t told) String() string {
	if t.reason == "" {
		return fmt.Sprintf("a victim has no verdict after %.0f s", t.took.Seconds())
	}
	return fmt.Sprintf("a victim has %s after %.1f s", t.reason, t.took.Seconds())
}

// verdictOn deletes a victim, waits for the verdict on it and lets it go.
func verdictOn(ctx context.Context, node *bed.Node, name string) (t told, err error) {
	pods := node.API.CoreV1().Pods(namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return t, err
	}
	deleted := time.Now()
	for t.reason == "" && t.took < victimWithin {
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return t, err
		}
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		t.took = time.Since(deleted)
		if err != nil {
			continue // the API server is attacked, too
		}
		if c := bed.Condition(p); c != nil && c.Status == corev1.ConditionTrue {
			t.reason = c.Reason
		}
	}
	return t, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// wrongVerdicts returns those on attackers that are not why they do not go: a finalizer keeps them, or the first process has no handler
// for SIGTERM.
func wrongVerdicts(ctx context.Context, node *bed.Node) (string, error) {
	list, err := node.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "attack"})
	if err != nil {
		return "", err
	}
	wrong := ""
	for i := range list.Items {
		p := &list.Items[i]
		c := bed.Condition(p)
		if c == nil || c.Status != corev1.ConditionTrue {
			continue
		}
		right := victimCause
		if len(p.Finalizers) > 0 {
			right = "FinalizersPending"
		}
		if c.Reason != right {
			wrong += fmt.Sprintf("; %.20s has %s", p.Name, c.Reason)
		}
	}
	return wrong, nil
}

// chargedPod is the line of the agent's log that names a pod whose processes take too long to read.
var chargedPod = regexp.MustCompile(`msg="a pod's processes take too long to read.* pod=(\S+)`)

// lostTo returns what the agent counts as lost to an attack, and whom its log charges.
func lostTo(ctx context.Context, node *bed.Node, agent *corev1.Pod, metrics string) (string, error) {
	lost := ""
	for _, name := range []string{"nodeagent_processes_passed_over_total", "nodeagent_terminating_pods_not_kept", "nodeagent_verdicts_dropped_total"} {
		if n, err := value(metrics, name); err == nil && n > 0 { // an older agent does not count all
			lost += fmt.Sprintf("; %s %.0f", strings.TrimPrefix(name, "nodeagent_"), n)
		}
	}
	log, err := node.API.CoreV1().Pods(agent.Namespace).GetLogs(agent.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	charged := make(map[string]bool)
	for _, m := range chargedPod.FindAllStringSubmatch(string(log), -1) {
		charged[m[1]] = true
	}
	if len(charged) > 0 {
		lost += "; charged " + strings.Join(slices.Sorted(maps.Keys(charged)), ", ")
	}
	return lost, nil
}

// memory is a shell script that finds the files of the control group of the agent's container: limit, peak, and from stats the number
// of times that the limit was reached, and that the kernel has killed a process in it, behind full and killed.
const memory = `for p in $(pgrep -x nodeagent); do
  tr '\0' ' ' </proc/$p/cmdline | grep -q ' run' || continue
  v1=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/$p/cgroup) v2=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup)
  if [ -e $v1/memory.limit_in_bytes ]; then
    limit=$v1/memory.limit_in_bytes peak=$v1/memory.max_usage_in_bytes
    stats() { sed 's/^/full /' $v1/memory.failcnt; sed -n 's/^oom_kill /killed /p' $v1/memory.oom_control; }
  else
    limit=$v2/memory.max peak=$v2/memory.peak
    stats() { sed -n 's/^max /full /p; s/^oom_kill /killed /p' $v2/memory.events; }
  fi
done
`

// A taken is how much memory the agent's container has taken at most, with the pages of files and the kernel's own objects that are
// counted for it, and how often it reached its limit, and the kernel killed a process in it.
type taken struct{ peak, full, killed int64 }

func takenBy(ctx context.Context, node *bed.Node) (t taken, err error) {
	out, err := node.Exec(ctx, memory+`echo $(cat $peak) $(stats)`)
	if err != nil {
		return t, err
	}
	if _, err := fmt.Sscanf(strings.TrimSpace(out), "%d full %d killed %d", &t.peak, &t.full, &t.killed); err != nil {
		return t, fmt.Errorf("memory of the agent's control group: %w: %q", err, out)
	}
	return t, nil
}

// attackPod returns a pod with a grace period that outlasts the attack.
func attackPod(n *bed.Node, i int, image string, command ...string) *corev1.Pod {
	p := sleeper(n.Name, i)
	p.Name, p.Namespace, p.Labels = fmt.Sprintf("attack-%d", i), n.Namespace(), map[string]string{"attack": "yes"}
	grace := int64(attackTakes.Seconds())
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = image, command
	return p
}

// mounter returns a pod of the victim that mounts.
func mounter(n *bed.Node, i int, mounts string) *corev1.Pod {
	p := attackPod(n, i, bed.VictimImage, "/victim", "mounts", mounts)
	privileged := true
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
	return p
}

// finalizedPod returns a pod that the kubelet refuses, so that it costs the node nothing, and that a finalizer keeps.
func finalizedPod(n *bed.Node, i int) *corev1.Pod {
	p := attackPod(n, i, bed.BusyboxImage, "sleep", "2147483647")
	p.Finalizers = []string{"nodeagent.test/attack"}
	p.Spec.NodeSelector = map[string]string{"nodeagent.test/attack": "nowhere"}
	return p
}

// finalizedPods returns so many of them, each with what change does to it.
func finalizedPods(n *bed.Node, many int, change func(p *corev1.Pod, i int)) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range many {
		p := finalizedPod(n, i)
		change(p, i)
		pods = append(pods, p)
	}
	return pods
}

// finalized returns a thousand of them.
func finalized(n *bed.Node) []*corev1.Pod {
	return finalizedPods(n, 1000, func(p *corev1.Pod, i int) { p.Name = fmt.Sprintf("finalized-%d", i) })
}

// longNamed returns those that make the agent's metrics long.
func longNamed(n *bed.Node) []*corev1.Pod {
	return finalizedPods(n, 250, func(p *corev1.Pod, _ int) { p.Name += "-" + strings.Repeat("x", 253-len("attack-250-")) })
}

// longNames returns those in which a name that the API server does not limit has 1.3 MiB, each kind of name in turn.
func longNames(n *bed.Node) []*corev1.Pod {
	name := strings.Repeat("x", 13*100<<10)
	return finalizedPods(n, 90, func(p *corev1.Pod, i int) {
		p.Name = fmt.Sprintf("names-%d", i)
		switch i % 3 {
		case 0:
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "nodeagent.test/v1", Kind: "Attack", UID: "attack", Name: name, Controller: new(true)}}
		case 1:
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{name}}}}
		case 2:
			p.Spec.Volumes = []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		}
	})
}

// grouped returns pods whose processes are dear to read: the kernel writes all groups of a process into its status.
func grouped(n *bed.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range 3 {
		p := attackPod(n, i, bed.ProgramsImage, "python3", "-c", `import os, time
os.setgroups(range(4294000000 - 65536, 4294000000))
open("/proc/self/comm", "w").write("containerd-shim")
for _ in range(400):
    if os.fork() == 0: time.sleep(10**6)
time.sleep(10**6)`)
		p.Name = fmt.Sprintf("groups-%d", i)
		pods = append(pods, p)
	}
	return pods
}

// readers returns pods that ask the agent for its metrics, each on 32 connections, and do not read the answers.
func readers(n *bed.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range 8 {
		p := attackPod(n, i, bed.BusyboxImage, "sh", "-c", `for i in $(seq 32); do
  while :; do (printf 'GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n'; sleep 20) | nc IP 9732 | sleep 20; done &
done; wait`)
		p.Name, p.Spec.HostNetwork = fmt.Sprintf("reader-%d", i), false
		pods = append(pods, p)
	}
	return pods
}

// largePod returns a pod whose object has so many times 100 KiB.
func largePod(n *bed.Node, i, size int) *corev1.Pod {
	p := finalizedPod(n, i)
	for k := range size {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("LARGE_%d", k), Value: strings.Repeat("x", 100<<10)})
	}
	return p
}
