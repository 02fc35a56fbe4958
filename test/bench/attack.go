package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	attackTakes = 5 * time.Minute
)

// An attacker is something that a tenant may do to the agent of its node.
type attacker struct {
	what string
	// pods terminate while the agent is watched; nil for none.
	pods func(*bed.Node) []*corev1.Pod
	// run is done on the node as it begins, IP being the agent's; "" for nothing.
	run string
	// server are arguments with which the API server is started meanwhile.
	server []string
	// most is how much memory the agent's container has; 0 for maxMemory.
	most int64
}

var attackers = []attacker{
	{what: "nothing: one pod that waits for SIGKILL", pods: func(n *bed.Node) []*corev1.Pod {
		return []*corev1.Pod{attackPod(n, 0, bed.BusyboxImage, "sleep", "3600")}
	}},
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

// largePods returns pods whose objects have so many times 100 KiB.
func largePods(n *bed.Node, size int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range crowd {
		pods = append(pods, largePod(n, i, size))
	}
	return pods
}

// attack measures the agent's memory and processor time while a tenant does its worst.
func attack(ctx context.Context) (rows []row, err error) {
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
	for _, a := range attackers {
		progress("  %s", a.what)
		r, err := a.against(ctx, c, node)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", a.what, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// against measures with the API server that the attack wants.
func (a *attacker) against(ctx context.Context, c *bed.Cluster, node *bed.Node) (r row, err error) {
	if len(a.server) == 0 {
		return a.measure(ctx, node)
	}
	if err := c.RestartAPIServer(ctx, a.server...); err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, c.RestartAPIServer(context.WithoutCancel(ctx))) }()
	return a.measure(ctx, node)
}

// measure attacks an agent that has just been started, and watches it.
func (a *attacker) measure(ctx context.Context, node *bed.Node) (r row, err error) {
	old, err := node.AgentPod(ctx)
	if err != nil {
		return row{}, err
	}
	pods := node.API.CoreV1().Pods(node.Namespace())
	var names []string
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attackTakes)
		defer cancel()
		for _, name := range names {
			_, patchErr := pods.Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			_ = patchErr // it may have gone
			_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}
		err = errors.Join(err, bed.Until(ctx, "the attackers to go", func() (bool, string) {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "attack"})
			if err != nil {
				return false, err.Error()
			}
			return len(list.Items) == 0, fmt.Sprintf("%d are there", len(list.Items))
		}))
	}()
	begins, cancel := context.WithTimeout(ctx, attackTakes)
	defer cancel()
	for _, p := range a.pods(node) {
		if _, err := pods.Create(begins, p, metav1.CreateOptions{}); err != nil {
			return row{}, err
		}
		names = append(names, p.Name)
	}
	if err := bed.Until(begins, "the attack to begin", func() (bool, string) {
		list, err := pods.List(begins, metav1.ListOptions{LabelSelector: "attack"})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			p := &list.Items[i]
			ready := len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
			if !ready && p.Status.Phase != corev1.PodFailed {
				return false, p.Name + " is not ready"
			}
		}
		return true, ""
	}); err != nil {
		return row{}, err
	}
	for _, name := range names {
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return row{}, err
		}
	}
	// A new agent, whose peak is that of the attack and which has to list what there is.
	if err := node.API.CoreV1().Pods(node.Agents.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return row{}, err
	}
	var agent *corev1.Pod
	if err := bed.Until(begins, "the new agent", func() (bool, string) {
		agent, err = node.AgentPod(begins)
		return err == nil && agent.UID != old.UID && agent.Status.ContainerStatuses[0].Ready, "not there yet"
	}); err != nil {
		return row{}, err
	}
	most := cmp.Or(a.most, maxMemory)
	if _, err := node.Exec(ctx, memory+fmt.Sprintf("echo %d >$limit", most)); err != nil {
		return row{}, fmt.Errorf("limit the agent's memory: %w", err)
	}
	if a.run != "" {
		if _, err := node.Exec(ctx, strings.ReplaceAll(a.run, "IP", agent.Status.PodIP)); err != nil {
			return row{}, err
		}
	}
	before, _, err := usages(ctx, node)
	if err != nil {
		return row{}, err
	}
	if err := sleep(ctx, rounds/2); err != nil {
		return row{}, err
	}
	capture := ""
	if len(names) > 1 {
		if _, err := node.Capture(ctx, names[0], bed.ShortWait); err != nil {
			capture = "; the capture failed: " + err.Error()
		}
	}
	if err := sleep(ctx, rounds/2); err != nil {
		return row{}, err
	}
	after, _, err := usages(ctx, node)
	if err != nil {
		return row{}, err
	}
	now, err := node.AgentPod(ctx)
	if err != nil {
		return row{}, err
	}
	restarts := now.Status.ContainerStatuses[0].RestartCount
	taken, err := takenBy(ctx, node)
	if err != nil {
		return row{}, err
	}
	metrics, err := node.MetricsOnNode(ctx, now.Status.PodIP)
	if err != nil {
		return row{}, err
	}
	period, err := value(metrics, "nodeagent_round_period_seconds")
	if err != nil {
		return row{}, fmt.Errorf("%w\n%.200s", err, metrics)
	}
	sum, err := value(metrics, "nodeagent_gather_duration_seconds_sum")
	if err != nil {
		return row{}, err
	}
	count, err := value(metrics, "nodeagent_gather_duration_seconds_count")
	if err != nil {
		return row{}, err
	}
	return row{
		what:   "Attack: " + a.what,
		target: fmt.Sprintf("%s suffice, no restart", mebibytes(most)),
		measured: fmt.Sprintf("peak %s, %d times at that limit, %d killed (RSS %s, own %s), %d restarts; "+
			"%.1f %% of a processor; a pod takes %.0f ms; period %.0f s%s",
			mebibytes(taken.peak), taken.full, taken.killed, mebibytes(after.rss), mebibytes(after.anon), restarts,
			100*(after.cpu-before.cpu).Seconds()/rounds.Seconds(), 1000*sum/max(count, 1), period, capture),
		met: taken.peak <= most && taken.killed == 0 && restarts == 0 && capture == "",
	}, nil
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

// largePod returns a pod whose object has so many times 100 KiB. The kubelet refuses it, so that it
// costs the node nothing, and a finalizer keeps it.
func largePod(n *bed.Node, i, size int) *corev1.Pod {
	p := attackPod(n, i, bed.BusyboxImage, "true")
	p.Finalizers = []string{"nodeagent.test/attack"}
	p.Spec.NodeSelector = map[string]string{"nodeagent.test/attack": "nowhere"}
	for k := range size {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("LARGE_%d", k), Value: strings.Repeat("x", 100<<10)})
	}
	return p
}
