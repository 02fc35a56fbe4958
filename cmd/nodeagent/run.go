package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/orphan"
	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

type runOptions struct {
	host                   hostOptions
	kubeconfig             string
	listen                 string
	period                 time.Duration
	budget                 int
	orphans                time.Duration
	inGraceAfter, longHook time.Duration
	policies               bool
	pod                    string
	namespace              string
	logFormat              string
	logLevel               slog.Level
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watch the pods of this node and report why they are stuck Terminating",
		Long: `The DaemonSet runs this command on every node. It needs the host's PID namespace,
the host's cgroup file system and containerd's socket; deploy/daemonset.yaml sets
up all of them. It serves /metrics, /healthz (ok while the last round is recent) and
/readyz (ok after the pods of the node were read from the API server, and while containerd's socket
and the kubelet's directory are found).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseSealed(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	o.host.addFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path to a kubeconfig file; default: the pod's service account (environment: KUBECONFIG)")
	f.StringVar(&o.listen, "listen", ":9732", "address on which to serve /metrics, /healthz and /readyz")
	f.DurationVar(&o.period, "period", 2*time.Second, "minimum time between two rounds over the terminating pods; grows to 10s under CPU pressure")
	f.IntVar(&o.budget, "verdicts-per-minute", 20, "maximum number of verdicts per minute about pods that are not overdue; above "+
		"that, each workload is reported once an hour")
	f.DurationVar(&o.inGraceAfter, "in-grace-period-after", time.Minute,
		"time after the deletion at which the condition of a pod inside its grace period says what is still running, and until when; 0 disables this")
	f.DurationVar(&o.longHook, "long-hook", 0,
		"how long a preStop hook must run before it is reported; 0 means a tenth of the grace period, at least 5m and at most 15m")
	f.DurationVar(&o.orphans, "orphans-after", 5*time.Minute, "how long a pod on the node must be missing from the API to count as an "+
		"orphan; 0 disables the search")
	f.BoolVar(&o.policies, "require-policies", false, "write nothing while the admission policies of deploy/daemonset.yaml do not restrict the agent's token")
	f.StringVar(&o.pod, "pod-name", os.Getenv("POD_NAME"), "name of the agent's own pod (environment: POD_NAME)")
	f.StringVar(&o.namespace, "pod-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the agent's own pod (environment: POD_NAMESPACE)")
	f.StringVar(&o.logFormat, "log-format", "text", "log format on standard error: text or json")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "minimum log level: debug, info, warn or error")
	return cmd
}

// longestPeriod is what the time between two rounds grows to.
const longestPeriod = 10 * time.Second

// endsWithin is how long the program may take to end when it is asked to.
// Nothing that it does has to be finished, and something may hang.
const endsWithin = 800 * time.Millisecond

func (o *runOptions) run(ctx context.Context) error {
	lines := newLossyWriter(os.Stderr)
	defer lines.close()
	log, err := newLogger(lines, o.logFormat, o.logLevel)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log.With("component", "client-go"))
	if err := o.host.check(); err != nil {
		return err
	}
	if o.period < time.Second {
		return fmt.Errorf("--period %s is shorter than a second; give 1s or more", o.period)
	}
	if own := o.pod != "" && o.namespace != ""; o.policies && !own {
		return errors.New("--require-policies takes the agent's own pod to try them with; " +
			"set POD_NAME and POD_NAMESPACE from the downward API (fieldRef: metadata.name and metadata.namespace)")
	}
	client, err := newClient(o.kubeconfig)
	if err != nil {
		return err
	}
	reader, kubelet, err := o.host.open()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	context.AfterFunc(ctx, func() {
		time.Sleep(endsWithin)
		os.Exit(0)
	})

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		if err := client.CheckNode(ctx, o.host.nodeName, log); err != nil {
			fail(fmt.Errorf("%w; NODE_NAME must be the name of the Node object (fieldRef: spec.nodeName)", err))
		}
	}()

	watch := client.WatchPods(o.host.nodeName, agent.Trim)
	a := o.newAgent(client, reader, watch, log)
	var policies *report.Policies
	if o.pod != "" && o.namespace != "" {
		policies = &report.Policies{Client: client, Namespace: o.namespace, Pod: o.pod, Node: o.host.nodeName, Required: o.policies, Log: log}
		go policies.Run(ctx)
	} else {
		log.Warn("cannot test whether the admission policies restrict the agent's token: " +
			"the agent's own pod is not known; set POD_NAME and POD_NAMESPACE from the downward API (fieldRef: metadata.name and metadata.namespace)")
	}
	metrics := report.NewMetrics(version, cause.Who(), time.Now, a.Cases, func() report.Counts {
		c := counts(a, reader, lines)
		c.Outside = watch.Outside()
		c.Held = policies.Held()
		return c
	})
	reporter := report.New(client, o.host.nodeName, metrics, log)
	reporter.Policies = policies
	a.Monitor, a.Report, a.ReportGone, a.ReportRemains = metrics, reporter.Report, reporter.ReportGone, reporter.ReportRemains
	if a.Orphans != nil {
		a.Orphans.Report = reporter.ReportOrphan
	}
	if err := record(a, reader, log); err != nil {
		return err
	}
	reader.Proc.Dear = func(uid string) {
		log.Warn("a pod's processes take too long to read; searches of the node come to them last, for two minutes",
			"uid", uid, "pod", reader.Proc.Prober.Name(uid))
	}
	reader.Panicked = func(v any, stack []byte) {
		log.Error("reading what all pods share panicked: this is a bug in nodeagent, please report it", "panic", fmt.Sprint(v), "stack", string(stack))
	}
	reader.Lost = func() {
		metrics.Lost()
		log.Error("reading what all pods share hangs; pods are read without it until it returns")
	}

	server := newServer(routes(a, watch, reader.Blind, metrics))
	go func() {
		if err := server.Serve(newLimited(listener)); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("serve metrics: %w", err))
		}
	}()
	if err := serveBaselines(ctx, baselineSocket, known(&a.Before, a.Cases)); err != nil {
		log.Warn("captures will lack how processes handled signals before the deletion", "error", err)
	}
	go watch.Run(ctx)

	// Once, so that what was there when the agent started is missed when it is not.
	first, cancel := context.WithTimeout(ctx, readWithin)
	_, _ = reader.Proc.Locate(first)
	reader.Round(first, node.Ask{})
	cancel()
	go keepLooking(ctx, reader, log)
	go logHealth(ctx, kubelet.Check, log)
	log.Info("watching the pods of the node", "node", o.host.nodeName, "version", version, "listen", listener.Addr().String())
	a.Run(ctx)
	reader.Close()
	_ = server.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped")
	return nil
}

// lookAgain is after how long what was not found on the node is looked for again: it may be there a moment later, as while the
// node is set up.
const lookAgain = 10 * time.Second

// keepLooking looks for the kubelet's directory and containerd's socket until both are found, and says in the log what is missing.
func keepLooking(ctx context.Context, reader *node.Reader, log *slog.Logger) {
	said := ""
	for {
		err := reader.Blind()
		if err == nil {
			break
		}
		if err.Error() != said {
			said = err.Error()
			log.Error("causes that need it cannot be found, and the agent is not ready", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookAgain):
		}
		limited, cancel := context.WithTimeout(ctx, readWithin)
		if _, err := reader.Proc.Locate(limited); err != nil {
			log.Debug("the kubelet's directory is still not found", "error", err)
		}
		cancel()
	}
	if said != "" {
		log.Info("containerd's socket and the kubelet's directory are found")
	}
}

// logHealth says in the log when the kubelet's health is not known: nothing else shows it,
// and on a cluster that kubeadm has set up it is so from the beginning.
func logHealth(ctx context.Context, check func(context.Context) (string, error), log *slog.Logger) {
	if _, err := check(ctx); err != nil && ctx.Err() == nil {
		log.Warn("cannot read the kubelet's health; causes that only its health check shows cannot be found", "error", err)
	}
}

// newAgent returns the loop with all that it asks. To whom it reports is set later: who
// counts asks the loop.
func (o *runOptions) newAgent(client *kube.Client, reader *node.Reader, watch *kube.Watch, log *slog.Logger) *agent.Agent {
	a := &agent.Agent{
		Watch:     watch,
		Reader:    reader,
		Skew:      client.Skew,
		Setters:   &agent.Setters{Ask: client.PodMetadata},
		Failures:  &agent.Failures{Ask: client.KillFailures, AskAll: client.KubeletEvents, Skew: client.Skew, Node: o.host.nodeName},
		Readiness: readiness(client, o.host.nodeName),
		Diagnose:  cause.Diagnose,
		Reasons:   reasons(),
		Wrote:     wrote,
		Cases:     new(verdict.Cases),
		Budget:    &verdict.Budget{PerMinute: o.budget},

		InGraceAfter: o.inGraceAfter,
		LongHook:     o.longHook,

		Period:  o.period,
		Longest: max(longestPeriod, o.period),
		Spent:   reader.Spent,
		Timeout: readWithin,
		Workers: 8,
		Log:     log,
	}
	if o.orphans > 0 {
		a.Orphans = &agent.Orphans{
			Tracker: &orphan.Tracker{After: o.orphans},
			Each: func(ctx context.Context, each func(*corev1.Pod)) error {
				return client.EachPod(ctx, o.host.nodeName, each)
			},
		}
	}
	return a
}

// reasons are those of a condition.
func reasons() []string {
	all := []string{verdict.Resolved, diagnose.InGracePeriod, diagnose.Unrecognised.Cause}
	for _, r := range cause.All() {
		all = append(all, r.Cause)
	}
	return all
}

// readiness asks for the Node of that name.
// wrote reports whether an agent may have written a condition about a pod, by its text.
func wrote(p *corev1.Pod, reason string, m condition.Message) bool {
	uid, _ := verdict.NodeUID(string(p.UID), p.Annotations)
	of := cause.Subject{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, UIDs: []string{string(p.UID), uid}}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			of.Own(statuses[i].ContainerID)
		}
	}
	return cause.Wrote(reason, m.Fix, m.Avoid, m.ForceDelete, of)
}

func readiness(client *kube.Client, node string) *agent.Readiness {
	return &agent.Readiness{Ask: func(ctx context.Context) (*corev1.NodeCondition, error) { return client.NodeReady(ctx, node) }}
}

// counts returns what the parts of the program count by themselves.
func counts(a *agent.Agent, reader *node.Reader, lines *lossyWriter) report.Counts {
	prober := reader.Proc.Prober
	c := report.Counts{
		Hangs: uint64(prober.Hangs()), Restarts: uint64(prober.Restarts()), Refused: uint64(prober.Refused()), Abandoned: prober.Abandoned(),
		ReadingsHanging: a.Hanging(), LinesDropped: lines.dropped.Load(), PassedOver: uint64(reader.Proc.PassedOver()), Requests: reader.Runtime.Requests(),
	}
	if reader.Hanging() {
		c.ReadingsHanging++
	}
	if a.Orphans != nil {
		c.Orphans = make(map[string]int)
		for kind, n := range a.Orphans.Count() {
			c.Orphans[string(kind)] = n
		}
	}
	return c
}

func newClient(kubeconfig string) (*kube.Client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "nodeagent/" + version
	// A drain gives many pods a verdict at once; client-go's own limits are for
	// five writes a second.
	config.QPS, config.Burst = 20, 50
	return kube.New(config)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w; in a pod, mount the service account's token; elsewhere, name a file with --kubeconfig", err)
	}
	return config, nil
}

// newServer returns a server of which no client holds a connection for long. A
// connection serves one request.
func newServer(handler http.Handler) *http.Server {
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      15 * time.Second,
		MaxHeaderBytes:    8 << 10,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}

func routes(a *agent.Agent, watch *kube.Watch, blind func() error, metrics *report.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Health(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !watch.Synced() {
			http.Error(w, "the pods of this node have not been read from the API server yet", http.StatusServiceUnavailable)
			return
		}
		if err := blind(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
