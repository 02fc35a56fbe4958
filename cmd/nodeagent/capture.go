package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/node"
)

// defaultWait is the time between the two readings of a capture: long enough for
// all rules that ask what has not moved.
const defaultWait = fact.SlowDevice + 500*time.Millisecond

func captureCommand() *cobra.Command {
	var o hostOptions
	var kubeconfig string
	var wait time.Duration
	var diagnosis bool
	cmd := &cobra.Command{
		Use:   "capture NAMESPACE/POD",
		Short: "Print the evidence about a terminating pod of this node as JSON",
		Long: `Capture reads everything that nodeagent looks at for a pod, twice. It reads a third
time if the kubelet or containerd is down, or if the API server has lost contact with
the kubelet. It prints the last reading as JSON, with one line for each container,
cgroup, thread and mount. This takes 12 seconds, or half a minute with the third
reading.

Begin times come from the running agent of the node. If it does not respond, they come
from the readings of capture only. With --diagnosis, capture prints the diagnosis
instead of the reading. For a pod that is not overdue, it prints on standard error when
the grace period ends. It adds what may hold up the pod after that.

The JSON contains no environment, arguments, annotations or file names, so you can
attach it to an issue. It does contain the names of pods, programs, volumes and
servers, and the address of a pod that has an httpGet hook.

Run capture in the agent's pod on the node of the pod, or as root from a copy of the
program on that node:

  kubectl get pods -n nodeagent-system -o wide --field-selector spec.nodeName=NODE
  kubectl -n nodeagent-system exec AGENT-POD -- /nodeagent capture NAMESPACE/POD

  NODE_NAME=NODE KUBECONFIG=/etc/kubernetes/kubelet.conf ./nodeagent capture NAMESPACE/POD`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseSealed(cmd.Flags()); err != nil {
				return err
			}
			log, err := newLogger(cmd.ErrOrStderr(), "text", slog.LevelWarn)
			if err != nil {
				return err
			}
			klog.SetSlogLogger(log)
			if err := o.check(); err != nil {
				return err
			}
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return fmt.Errorf("%q is not NAMESPACE/POD", args[0])
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			beSmall()
			// A reading that hangs does not end with its context.
			stop := context.AfterFunc(ctx, func() {
				time.Sleep(2 * time.Second)
				fmt.Fprintln(os.Stderr, "nodeagent: a reading hangs; see the log of the agent on this node")
				os.Exit(1)
			})
			defer stop()
			p, err := capture(ctx, &o, kubeconfig, namespace, name, wait)
			if err != nil {
				return err
			}
			d := cause.Diagnose(p)
			if diagnosis {
				var text []byte
				if text, err = evidence.JSON(diagnosed{fact.See(p).Actors, d, cause.Table().Ask(p)}, "  "); err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
				}
			} else {
				err = evidence.Encode(cmd.OutOrStdout(), p)
			}
			// Not among what may be attached to an issue.
			if says := diagnose.Outlook(p, &d); says != "" && err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s is %s\n", args[0], says)
			}
			return err
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().DurationVar(&wait, "wait", defaultWait, "time between the two readings; if shorter than the default, some stuck pods look healthy")
	cmd.Flags().BoolVar(&diagnosis, "diagnosis", false, "print the diagnosis instead of the evidence: the components that stop the pod, the phase, "+
		"the causes found and the open ones, whether a force delete is safe, and each condition's answer")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path to a kubeconfig file; default: the pod's service "+
		"account (environment: KUBECONFIG)")
	return cmd
}

// A diagnosed is what capture --diagnosis prints.
type diagnosed struct {
	Actors fact.Actors `json:"actors"`
	diagnose.Diagnosis
	// Asked is what each cause's conditions answer.
	Asked []diagnose.Asked `json:"asked"`
}

// captureMemory is what the collector keeps a capture to, in bytes. In the agent's container the two share one limit, and the kernel may end the agent.
const captureMemory = 20 << 20

// beSmall keeps a capture from costing the agent its life: it uses little memory, and is the first to be ended where there is none.
func beSmall() {
	debug.SetMemoryLimit(captureMemory)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644) // without it, the limit has to do
}

func capture(ctx context.Context, o *hostOptions, kubeconfig, namespace, name string, wait time.Duration) (*evidence.Pod, error) {
	client, err := newClient(kubeconfig)
	if err != nil {
		return nil, err
	}
	pod, err := client.Pod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != o.nodeName {
		return nil, fmt.Errorf("pod %s/%s is on node %q, this is %q; run capture in the pod of nodeagent on that "+
			"node", namespace, name, pod.Spec.NodeName, o.nodeName)
	}
	if pod.DeletionTimestamp == nil {
		return nil, fmt.Errorf("pod %s/%s is not terminating: it has no deletionTimestamp", namespace, name)
	}
	reader, _, err := o.open()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if _, err := reader.Proc.Locate(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodeagent:", err)
	}
	pods := podsOfNode(ctx, client, o.nodeName)
	least, most, measured := client.Skew()
	ask := agent.Ask(pods, time.Now().Add(most))
	ask.Overdue, ask.Finished = true, true
	seed := agent.Seed(pod)
	ask.Unprepares = seed.ResourceClaims > 0 // the deadline may pass meanwhile
	agent.DoubtDeadline(seed, pod)
	if measured {
		seed.SetSkew(least, most)
	}
	seed.Before = askBaseline(ctx, baselineSocket, seed)
	earlier := goOn(seed, askReading(ctx, baselineSocket, seed), time.Now())
	if earlier != nil {
		ask.Earlier = &earlier.Node
	}
	readings := readings{from: reader, seed: seed}
	first := readings.read(ctx, ask, earlier)
	last, rest := first, wait
	ready := readiness(client, o.nodeName)
	heardOf, _ := ready.Now(ctx)
	ask.Lists = ready.Unlisted() || first.Node.Kubelet.Unlisted()
	// What is down may be started again by itself, and a connection come back: rules wait
	// for that.
	for down := false; ; down = true {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rest):
		}
		ask.Earlier = &last.Node
		last = readings.read(ctx, ask, last)
		if n := &last.Node; down || n.Kubelet.AbsentSince.IsZero() && !n.Containerd.Refused && !heardOf.Unheard() && !ask.Lists {
			break
		}
		rest = fact.Restart
		if heardOf.Unheard() || ask.Lists {
			rest = fact.Reconnects
		}
		rest += 500*time.Millisecond - time.Since(first.Node.Read)
	}
	failures := agent.Failures{Ask: client.KillFailures, AskAll: client.KubeletEvents, Skew: client.Skew, Node: o.nodeName}
	heard, err := failures.Of(ctx, pod)
	last.SetStopFailures(heard, err)
	last.SetPulls(failures.Pulls(ctx, pod))
	last.SetNodeReady(ready.Now(ctx))
	setters := agent.Setters{Ask: client.PodMetadata}
	last.FinalizerSetters = setters.Of(ctx, pod, last)
	if len(heard) > 0 {
		last.Daemons = agent.Daemons(pods)
	}
	return last, nil
}

// lately is how old the agent's last reading may be for a capture to go on from there: several of its longest periods.
const lately = 2 * time.Minute

// goOn returns the reading that a capture goes on from, nil when there is none. Of an older one the seed keeps what was found of the
// pod at all.
func goOn(seed, last *evidence.Pod, now time.Time) *evidence.Pod {
	if last == nil {
		return nil
	}
	seed.Seen = last.Seen
	if now.Sub(last.Time) > lately {
		return nil
	}
	return last
}

// readings are those of a capture.
type readings struct {
	from node.Source
	seed *evidence.Pod
	lost chan *evidence.Pod // of one that was given up
}

// read takes one reading, with the deadlines of the loop. One that does not return is given up, and the seed says so: this
// reading and those that follow, until it does return, do without the pod's files.
func (r *readings) read(ctx context.Context, ask node.Ask, earlier *evidence.Pod) *evidence.Pod {
	shared, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	round := r.from.Round(shared, ask)
	select {
	case <-r.lost:
		r.seed.HungSince = time.Time{} // it was only slow
	default:
	}
	pod := func(seed *evidence.Pod) *evidence.Pod {
		own, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		return round.Pod(own, seed, earlier)
	}
	if r.seed.HungSince.IsZero() {
		whole, got := *r.seed, make(chan *evidence.Pod, 1)
		go func() { got <- pod(&whole) }()
		select {
		case p := <-got:
			return p
		case <-time.After(readWithin + time.Second):
		}
		r.seed.HungSince, r.lost = time.Now(), got
	}
	return pod(r.seed)
}

// podsOfNode returns the pods of the node as they are now. Without all of them the
// owners of tasks in other pods have no names, which is no reason to fail.
func podsOfNode(ctx context.Context, client *kube.Client, node string) []*corev1.Pod {
	var pods []*corev1.Pod
	_ = client.EachPod(ctx, node, func(p *corev1.Pod) {
		if trimmed, err := agent.Trim(p); err == nil {
			if p, ok := trimmed.(*corev1.Pod); ok {
				pods = append(pods, p)
			}
		}
	})
	return pods
}
