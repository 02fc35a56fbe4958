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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/report"
)

type runOptions struct {
	host       hostOptions
	kubeconfig string
	listen     string
	period     time.Duration
	logFormat  string
	logLevel   slog.Level
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watch the pods of this node and say why they are stuck Terminating",
		Long: `The DaemonSet runs this on every node. It needs the host's PID namespace, the
host's cgroup file system and containerd's socket; deploy/daemonset.yaml has them
all. It serves /metrics, /healthz (the last round is recent) and /readyz (the pods
of the node are known).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	o.host.addFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; default: the pod's service account (environment: KUBECONFIG)")
	f.StringVar(&o.listen, "listen", ":9732", "address for /metrics, /healthz and /readyz")
	f.DurationVar(&o.period, "period", 2*time.Second, "time between two rounds over the terminating pods")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "lowest level that is logged: debug, info, warn or error")
	return cmd
}

// endsWithin is how long the program may take to end when it is asked to.
// Nothing that it does has to be finished, and something may hang.
const endsWithin = 800 * time.Millisecond

func (o *runOptions) run(ctx context.Context) error {
	log, err := newLogger(o.logFormat, o.logLevel)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log.With("component", "client-go"))
	if err := o.host.check(); err != nil {
		return err
	}
	if o.period < time.Second {
		return fmt.Errorf("--period %s is shorter than a second", o.period)
	}
	client, err := newClient(o.kubeconfig)
	if err != nil {
		return err
	}
	h, err := o.host.open()
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
	go checkNode(ctx, client, o.host.nodeName, log, fail)

	metrics := report.NewMetrics(version, time.Now, func() report.Probes {
		return report.Probes{Hangs: uint64(h.prober.Hangs()), Restarts: uint64(h.prober.Restarts()), Abandoned: h.prober.Abandoned()}
	})
	reporter := report.New(client, o.host.nodeName, metrics, log)
	var a *agent.Agent
	store, informer := watchPods(client, o.host.nodeName, func(p *corev1.Pod) { a.Ended(p) })
	h.pods = func() []*corev1.Pod {
		if !informer.HasSynced() {
			return nil
		}
		var pods []*corev1.Pod
		for _, obj := range store.List() {
			pods = append(pods, obj.(*corev1.Pod))
		}
		return pods
	}
	a = &agent.Agent{
		Pods: h.pods,
		Node: func(ctx context.Context, overdue bool) evidence.Node {
			n := h.node(ctx, overdue)
			metrics.Blocked(n.Blocked)
			return n
		},
		Gather: func(ctx context.Context, p *evidence.Pod) {
			start := time.Now()
			h.gather(ctx, p)
			metrics.Gathered(time.Since(start))
		},
		Diagnose:   func(p *evidence.Pod) diagnose.Diagnosis { return diagnose.Run(p, diagnose.Rules()) },
		Report:     reporter.Report,
		ReportGone: reporter.ReportGone,
		Forget:     reporter.Forget,
		Ticked:     metrics.Ticked,
		Period:     o.period,
		Timeout:    8 * time.Second,
		Workers:    8,
		Log:        log,
	}

	server := &http.Server{Handler: routes(a, informer, metrics), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("serve metrics: %w", err))
		}
	}()
	go informer.RunWithContext(ctx)

	log.Info("watching the pods of the node", "node", o.host.nodeName, "version", version, "listen", listener.Addr().String())
	a.Run(ctx)
	h.close()
	_ = server.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped")
	return nil
}

func newLogger(format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q is neither text nor json", format)
}

func newClient(kubeconfig string) (*kube.Client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "nodeagent/" + version
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

// checkNode ends the program when the node is not one of the cluster: it would
// wait for pods for ever. Any other trouble with the API passes.
func checkNode(ctx context.Context, client *kube.Client, node string, log *slog.Logger, fail context.CancelCauseFunc) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		_, err := client.Node(ctx, node)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case apierrors.IsNotFound(err):
			fail(fmt.Errorf("the cluster has no node %q; NODE_NAME must be the name of the Node object (fieldRef: spec.nodeName)", node))
			return
		}
		log.Warn("cannot read the Node from the API server; trying again", "node", node, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// watchPods keeps the pods of the node, trimmed, in a store: one watch. Those
// that go are handed to gone in their last state.
func watchPods(client *kube.Client, node string, gone func(*corev1.Pod)) (cache.Store, cache.Controller) {
	return cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: client.PodsOfNode(node),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok {
				gone(p)
			}
		}},
		Transform: agent.Trim,
	})
}

func routes(a *agent.Agent, informer cache.Controller, metrics *report.Metrics) http.Handler {
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
		if !informer.HasSynced() {
			http.Error(w, "the pods of this node have not been read from the API server yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
