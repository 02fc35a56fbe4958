package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// namespace is this program's own; it is deleted in the end.
	namespace = "bench"
	// crowd is the number of running pods that the kubelet allows by default.
	crowd = 110
	// batch is how many pods are started side by side: an emulated node gets
	// through few, and gives up on those that take too long.
	batch = 10
	// patience is for how long pods are started.
	patience = 10 * time.Minute
	// window is how long the idle agent is watched, after settle.
	window = time.Minute
	settle = 30 * time.Second

	maxCPU = 2 // milliseconds in a second
)

// idle measures the agent beside a crowd of running pods, while nothing
// terminates.
func idle(ctx context.Context) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	node := c.Nodes[0]
	// Broken pods make the agent busy, and the agent is about to be replaced.
	broken, err := node.API.CoreV1().Pods(node.Namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	if n := len(broken.Items); n > 0 {
		return nil, fmt.Errorf("%d pods of namespace %s are there: wait until make e2e or make demo has ended", n, node.Namespace())
	}
	progress("  installing the agent")
	if err := bed.Install(ctx, c); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if e := disperse(ctx, node); e != nil {
			err = errors.Join(err, e)
		}
	}()
	running, took, err := gatherCrowd(ctx, node)
	if err != nil {
		return nil, err
	}
	rows = append(rows, row{
		what:     fmt.Sprintf("Running pods on the node, of %d", crowd),
		measured: fmt.Sprintf("%d, started in %s, on the node's network", running, took.Round(time.Second)),
	})
	if err := sleep(ctx, settle); err != nil {
		return rows, err
	}
	m, err := watchIdle(ctx, node)
	if err != nil {
		return rows, err
	}
	rows = append(rows, m...)
	r, err := cacheSize(ctx, node)
	if err != nil {
		return rows, err
	}
	return append(rows, r), nil
}

// gatherCrowd starts pods until there is the crowd, or the time is over, and
// tells how many run. Those that do not are deleted: what is measured is beside
// running pods.
func gatherCrowd(ctx context.Context, node *bed.Node) (running int, took time.Duration, err error) {
	begin := time.Now()
	if err := makeNamespace(ctx, node); err != nil {
		return 0, 0, err
	}
	others, err := countRunning(ctx, node, "")
	if err != nil {
		return 0, 0, err
	}
	pods := node.API.CoreV1().Pods(namespace)
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, said := 0, 0
	err = bed.Until(late, fmt.Sprintf("%d pods to run", crowd), func() (bool, string) {
		n, err := countRunning(late, node, namespace)
		if err != nil {
			return false, err.Error()
		}
		for ; made < n+batch && others+made < crowd; made++ {
			if _, err := pods.Create(late, sleeper(node.Name, made), metav1.CreateOptions{}); err != nil {
				return false, err.Error()
			}
		}
		if n >= said+batch {
			said = n
			progress("  %d pods of %d run after %s", others+n, crowd, time.Since(begin).Round(time.Second))
		}
		return others+n >= crowd, fmt.Sprintf("%d run", others+n)
	})
	if ctx.Err() != nil {
		return 0, 0, ctx.Err()
	}
	if err != nil {
		progress("  %v; going on with those that run", err)
	}
	took = time.Since(begin)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{FieldSelector: "status.phase=Pending"}); err != nil {
		return 0, 0, fmt.Errorf("delete pods that do not run: %w", err)
	}
	// One that has come to run meanwhile takes its time to go, and the agent
	// looks at it until it has.
	gone, cancelGone := context.WithTimeout(ctx, patience)
	defer cancelGone()
	if err := bed.Until(gone, "the deleted pods to go", func() (bool, string) {
		list, err := pods.List(gone, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		n := 0
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
				n++
			}
		}
		return n == 0, fmt.Sprintf("%d are there", n)
	}); err != nil {
		return 0, 0, err
	}
	running, err = countRunning(ctx, node, "")
	return running, took, err
}

// makeNamespace makes this program's own.
func makeNamespace(ctx context.Context, node *bed.Node) error {
	_, err := node.API.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%w; kubectl delete namespace %s, should another run have left it", err, namespace)
	}
	return nil
}

// countRunning counts the running pods of a namespace, or all, on the node.
func countRunning(ctx context.Context, node *bed.Node, namespace string) (int, error) {
	list, err := node.API.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running,spec.nodeName=" + node.Name})
	if err != nil {
		return 0, fmt.Errorf("list running pods: %w", err)
	}
	return len(list.Items), nil
}

// sleeper returns a pod that does nothing. The network of the node saves the CNI
// plugins' runs, which cost an emulated node the most, and is nothing to the
// agent.
func sleeper(node string, i int) *corev1.Pod {
	no, grace := false, int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sleeper-%d", i), Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			HostNetwork:                   true,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: bed.BusyboxImage, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sleep", "2147483647"},
			}},
		},
	}
}

// disperse deletes the namespace and waits until its pods are gone from the
// node.
func disperse(ctx context.Context, node *bed.Node) error {
	progress("  deleting the pods")
	if err := node.API.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete namespace %s: %w", namespace, err)
	}
	return bed.Until(ctx, "namespace "+namespace+" to go", func() (bool, string) {
		_, err := node.API.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		n, err := countRunning(ctx, node, namespace)
		if err != nil {
			return false, err.Error()
		}
		return false, fmt.Sprintf("%d pods run", n)
	})
}

// A usage is what the kernel says of a process: bytes, and time on the CPU
// since its start.
type usage struct {
	rss int64
	// anon and file are the process's own share of its pages, each page that both processes have counted once (Pss). tables are its page tables.
	anon, file, tables int64
	cpu                time.Duration
}

// usages reads on the node the agent's process and its helper, which may not
// run; and how much time on the CPU the program needs to start there.
func usages(ctx context.Context, node *bed.Node) (agent, helper *usage, err error) {
	out, err := node.Exec(ctx, `for p in $(pgrep -x nodeagent); do
  echo process $p $(tr '\0' ' ' </proc/$p/cmdline)
  grep -E '^(VmRSS|VmPTE):' /proc/$p/status
  grep -E '^(Pss_Anon|Pss_File):' /proc/$p/smaps_rollup
  echo stat $(sed 's/.*) //' /proc/$p/stat)
done`)
	if err != nil {
		return nil, nil, err
	}
	var u *usage
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		number := func(i int) int64 { // fields of the kernel's are numbers
			n, _ := strconv.ParseInt(f[min(i, len(f)-1)], 10, 64)
			return n
		}
		switch f[0] {
		case "process":
			u = new(usage)
			switch {
			case slices.Contains(f, "run"):
				agent = u
			case slices.Contains(f, "probe"):
				helper = u
			}
		case "VmRSS:":
			u.rss = number(1) << 10
		case "VmPTE:":
			u.tables = number(1) << 10
		case "Pss_Anon:":
			u.anon = number(1) << 10
		case "Pss_File:":
			u.file = number(1) << 10
		case "stat": // from the third field of proc_pid_stat(5): utime and stime, in ticks of 10 ms
			u.cpu = time.Duration(number(12)+number(13)) * 10 * time.Millisecond
		}
	}
	if agent == nil || agent.rss == 0 {
		return nil, nil, fmt.Errorf("no process of the agent was understood on node %s:\n%s", node.Name, indent(out))
	}
	return agent, helper, nil
}

// watchIdle watches the agent for a while in which nothing terminates.
func watchIdle(ctx context.Context, node *bed.Node) ([]row, error) {
	slowness, err := emulation(ctx, node)
	if err != nil {
		return nil, err
	}
	self, err := node.AgentPod(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := node.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	before, _, err := usages(ctx, node)
	if err != nil {
		return nil, err
	}
	asked, err := countLoops(ctx, node)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := sleep(ctx, window); err != nil {
		return nil, err
	}
	end := time.Now()
	after, helper, err := usages(ctx, node)
	if err != nil {
		return nil, err
	}
	did, err := countLoops(ctx, node)
	if err != nil {
		return nil, err
	}
	did = did.since(asked)
	metricsAfter, err := node.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range []string{metrics, metricsAfter} {
		n, err := value(m, "nodeagent_terminating_pods")
		if err != nil {
			return nil, err
		}
		if n != 0 {
			return nil, fmt.Errorf("the agent is not idle: %v pods terminate; wait until they are gone", n)
		}
	}
	rss, err := value(metricsAfter, "process_resident_memory_bytes")
	if err != nil {
		return nil, err
	}
	if again, err := node.AgentPod(ctx); err != nil || again.UID != self.UID || after.cpu < before.cpu {
		return nil, fmt.Errorf("the agent was replaced while it was watched (%w); run it again", err)
	}
	// The log is written when a request ends.
	if err := sleep(ctx, 5*time.Second); err != nil {
		return nil, err
	}
	api, err := requests(ctx, node, self.Name, begin, end)
	if err != nil {
		return nil, err
	}
	perSecond := float64((after.cpu - before.cpu).Milliseconds()) / end.Sub(begin).Seconds()
	cpu := []row{{
		what:     "  CPU",
		target:   fmt.Sprintf("≤%d ms/s", maxCPU),
		measured: fmt.Sprintf("%.2f ms/s", perSecond),
		met:      perSecond <= maxCPU,
	}}
	if slowness > 2 {
		cpu[0].met = perSecond/slowness <= maxCPU
		cpu[0].measured = fmt.Sprintf("about %.2f ms/s", perSecond/slowness)
		cpu = append(cpu, row{
			what:     "    on the node, which is emulated",
			measured: fmt.Sprintf("%.2f ms/s; the program's start takes %.1fx the CPU of this machine", perSecond, slowness),
		})
	}
	if helper == nil {
		helper = new(usage)
	}
	rows := []row{{
		what: "  Memory of the agent and its helper: own; page tables; pages of the program's file, once",
		measured: fmt.Sprintf("%s; %s; %s", mebibytes(after.anon+helper.anon), mebibytes(after.tables+helper.tables),
			mebibytes(after.file+helper.file)),
	}, {
		what:     "    of the agent; its RSS (process_resident_memory_bytes)",
		measured: fmt.Sprintf("%s; %s", mebibytes(after.anon), mebibytes(int64(rss))),
	}, {
		what:     "    of the helper; its RSS",
		measured: fmt.Sprintf("%s; %s", mebibytes(helper.anon), mebibytes(helper.rss)),
	}}
	return append(append(rows, cpu...), []row{{
		what:   "  Writes to the API",
		target: "0 per hour",
		measured: fmt.Sprintf("%.0f per hour: %d in %s", float64(api.writes)*float64(time.Hour)/float64(end.Sub(begin)), api.writes,
			end.Sub(begin).Round(time.Second)),
		met: api.writes == 0,
	}, {
		what:     "  Watches open",
		target:   "1",
		measured: fmt.Sprintf("%d; %d other reads in the same time", api.watches, api.reads),
		met:      api.watches == 1,
	}, {
		what:     "  Requests to shims",
		target:   "0",
		measured: fmt.Sprintf("%.0f in %.0f loops; %.0f others to containerd", did.shims, did.loops, did.requests-did.shims),
		met:      did.shims == 0,
	}}...), nil
}

// value returns the value of a metric without labels.
func value(metrics, name string) (float64, error) {
	for line := range strings.Lines(metrics) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, fmt.Errorf("the agent has no metric %s", name)
}

// emulation returns how many times the CPU the agent's program takes on the node for
// what it takes here: `nodeagent explain`, which is mostly its start.
func emulation(ctx context.Context, node *bed.Node) (float64, error) {
	const times = 10
	// A container's program cannot be named on the node but by a process of it.
	out, err := node.Exec(ctx, fmt.Sprintf(`exe=/proc/$(pgrep -o -x nodeagent)/exe; for i in $(seq %d); do $exe explain >/dev/null || exit 1; done; cat /proc/$$/stat | sed 's/.*) //'`, times))
	if err != nil {
		return 0, fmt.Errorf("run the agent's program on the node: %w", err)
	}
	f := strings.Fields(out)
	if len(f) < 16 {
		return 0, fmt.Errorf("stat of the node's shell: %q", out)
	}
	user, _ := strconv.Atoi(f[13]) // cutime and cstime, in ticks of 10 ms
	system, _ := strconv.Atoi(f[14])
	there := time.Duration(user+system) * 10 * time.Millisecond
	var here time.Duration
	for range times {
		cmd := exec.CommandContext(ctx, file("bin", "nodeagent"), "explain")
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("run the agent's program here: %w; make build builds it", err)
		}
		here += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return float64(there) / float64(here), nil
}

// A traffic is what the agent asks of the API server: watches that are open at
// the end, and other requests inside a period.
type traffic struct{ watches, writes, reads int }

// requests reads the API server's audit log. A watch has an entry when it
// starts and one when it ends.
func requests(ctx context.Context, node *bed.Node, pod string, begin, end time.Time) (traffic, error) {
	var t traffic
	path, err := node.AuditLog(ctx)
	if err != nil {
		return t, err
	}
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	open := make(map[string]bool)
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		if !strings.Contains(s.Text(), pod) {
			continue
		}
		var e struct {
			AuditID, Stage, Verb string
			StageTimestamp       time.Time
			User                 struct{ Extra map[string][]string }
		}
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return t, fmt.Errorf("audit log: %w", err)
		}
		// The token of a pod names it.
		if names := e.User.Extra["authentication.kubernetes.io/pod-name"]; len(names) != 1 || names[0] != pod {
			continue
		}
		inside := !e.StageTimestamp.Before(begin) && !e.StageTimestamp.After(end)
		switch {
		case e.Verb == "watch" && e.Stage == "ResponseStarted" && !e.StageTimestamp.After(end):
			open[e.AuditID] = true
		case e.Verb == "watch" && !e.StageTimestamp.After(end):
			delete(open, e.AuditID)
		case e.Verb == "watch" || !inside || e.Stage != "ResponseComplete":
		case e.Verb == "get" || e.Verb == "list":
			t.reads++
		default:
			t.writes++
		}
	}
	t.watches = len(open)
	return t, s.Err()
}

// cacheSize measures what a crowd of objects takes in the agent's cache, and
// would take untrimmed: memory in use after a collection, with and without. The
// objects are those of the node's pods, some of them more than once where fewer
// run.
func cacheSize(ctx context.Context, node *bed.Node) (row, error) {
	list, err := node.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	if err != nil {
		return row{}, fmt.Errorf("list pods: %w", err)
	}
	if len(list.Items) == 0 {
		return row{}, fmt.Errorf("node %s has no pods", node.Name)
	}
	var text [crowd][]byte
	for i := range text {
		p := list.Items[i%len(list.Items)].DeepCopy()
		p.Name += fmt.Sprintf("-%d", i)
		if text[i], err = json.Marshal(p); err != nil {
			return row{}, err
		}
	}
	fill := func(trim cache.TransformFunc) (bytes uint64, err error) {
		before := heap()
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for _, b := range text {
			p := new(corev1.Pod)
			if err := json.Unmarshal(b, p); err != nil {
				return 0, err
			}
			o, err := trim(p)
			if err != nil {
				return 0, err
			}
			if err := store.Add(o); err != nil {
				return 0, err
			}
		}
		bytes = heap() - before
		runtime.KeepAlive(store)
		return bytes, nil
	}
	trimmed, err := fill(agent.Trim)
	if err != nil {
		return row{}, err
	}
	whole, err := fill(func(o any) (any, error) { return o, nil })
	if err != nil {
		return row{}, err
	}
	return row{
		what:     fmt.Sprintf("  Cache of %d such pods", crowd),
		measured: fmt.Sprintf("%d KiB, %d bytes a pod; untrimmed %d KiB", trimmed>>10, trimmed/crowd, whole>>10),
	}, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may leave what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
