// Package collect reads of the API what package why answers from. Only the list of pods has to be readable; what else is not is said.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/nodeagent-io/nodeagent/pkg/why"
)

// Clients are what asks the API.
type Clients struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
}

// A Query is which pods are asked for.
type Query struct {
	Namespace string   // "" for all
	Names     []string // none for all
	Selector  string
	Node      string
}

// NotFound is a pod that is asked for by name and not there, or not terminating.
type NotFound struct {
	Name, Namespace string
	Runs            bool // it is there, and nobody has deleted it
}

func (e *NotFound) Error() string {
	if e.Runs {
		return fmt.Sprintf("pod %q in namespace %q is not being deleted", e.Name, e.Namespace)
	}
	return fmt.Sprintf("pod %q not found in namespace %q: it was deleted, or the name or namespace is wrong; -A lists all that terminate", e.Name, e.Namespace)
}

// View reads what is needed to answer the query, but for the time. The error says why no pods could be listed.
func View(ctx context.Context, c Clients, q Query) (*why.View, error) {
	v, client := &why.View{Namespace: q.Namespace, Node: q.Node, Selector: q.Selector}, c.Client
	if err := listPods(ctx, client, q, v); err != nil {
		return nil, err
	}
	if len(v.Pods) == 0 {
		return v, knownNode(ctx, client, q.Node)
	}
	readNodes(ctx, client, v)
	readAgents(ctx, client, v)
	readClaims(ctx, client, v)
	if len(q.Names) > 0 { // it lists all kinds of objects of their namespace
		readDependents(ctx, c, v)
	}
	return v, nil
}

// knownNode returns an error if there is no node of that name, and nothing if that cannot be read.
func knownNode(ctx context.Context, client kubernetes.Interface, name string) error {
	if name == "" {
		return nil
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("node %q not found, and no pod is terminating on it; kubectl get nodes lists them", name)
	}
	return nil
}

func listPods(ctx context.Context, client kubernetes.Interface, q Query, v *why.View) error {
	if len(q.Names) > 0 {
		var missing error
		for _, name := range q.Names {
			p, err := getPod(ctx, client.CoreV1().Pods(q.Namespace), name)
			switch {
			case apierrors.IsNotFound(err):
				missing = &NotFound{Name: name, Namespace: q.Namespace}
				unread(v, "pod "+name, missing)
			case err != nil:
				return err
			case p.DeletionTimestamp == nil:
				missing = &NotFound{Name: name, Namespace: q.Namespace, Runs: true}
				unread(v, "pod "+name, missing)
			default:
				v.Pods = append(v.Pods, p)
			}
		}
		if len(v.Pods) == 0 {
			return missing
		}
		return nil
	}
	options := metav1.ListOptions{LabelSelector: q.Selector}
	if q.Node != "" {
		options.FieldSelector = "spec.nodeName=" + q.Node
	}
	return all(ctx, options, client.CoreV1().Pods(q.Namespace).List, func(p *corev1.Pod) {
		if p.DeletionTimestamp != nil {
			v.Pods = append(v.Pods, p)
		}
	})
}

// getPod returns a pod. Who may only list pods gets it, too.
func getPod(ctx context.Context, pods typedcorev1.PodInterface, name string) (*corev1.Pod, error) {
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		return p, err
	}
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return &list.Items[0], nil
}

// all lists objects page by page. An object that is kept keeps no other one of its page.
func all[T any, L runtime.Object](ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error),
	each func(T)) error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	p.PageBufferSize = 1
	return p.EachListItemWithAlloc(ctx, options, func(item runtime.Object) error {
		if t, ok := item.(T); ok {
			each(t)
		}
		return nil
	})
}

// effects are what is not known where something was not read.
var effects = map[string]string{
	"get nodes": "lost nodes are not recognized", "list nodes": "lost nodes are not recognized",
	agentsOf: "whether nodeagent is Ready is not known",
}

// agentsOf is the request that the agents are read by.
const agentsOf = "list pods in namespace " + usualNamespace

// unread takes note of what could not be read.
func unread(v *why.View, what string, err error) {
	v.Unread = append(v.Unread, why.Unread{What: what, Why: reason(err), Effect: effects[what]})
}

// reason puts the error of a request into words.
func reason(err error) string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden"
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server did not answer in time"
	case errors.As(err, &status):
		return status.Status().Message
	}
	return err.Error()
}

// few is how many objects are asked for one by one, which needs no permission to list. More are listed.
const few = 10

// A resource is a client of one kind of objects.
type resource[T metav1.Object, L runtime.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	List(ctx context.Context, o metav1.ListOptions) (L, error)
}

// read returns the objects of these names that exist, nil where they may not be read.
func read[T metav1.Object, L runtime.Object](ctx context.Context, v *why.View, what string, names map[string]bool, from resource[T, L]) map[string]T {
	out := make(map[string]T)
	if len(names) <= few {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			switch object, err := from.Get(ctx, name, metav1.GetOptions{}); {
			case apierrors.IsNotFound(err):
			case err != nil:
				unread(v, "get "+what, err)
				return nil
			default:
				out[name] = object
			}
		}
		return out
	}
	if err := all(ctx, metav1.ListOptions{}, from.List, func(object T) {
		if names[object.GetName()] {
			out[object.GetName()] = object
		}
	}); err != nil {
		unread(v, "list "+what, err)
		return nil
	}
	return out
}

// readNodes reads the nodes of the pods, and the Leases of those that are not ready.
func readNodes(ctx context.Context, client kubernetes.Interface, v *why.View) {
	names := make(map[string]bool)
	for _, p := range v.Pods {
		if p.Spec.NodeName != "" {
			names[p.Spec.NodeName] = true
		}
	}
	v.Nodes = read(ctx, v, "nodes", names, client.CoreV1().Nodes())
	lost := make(map[string]bool)
	for name, n := range v.Nodes {
		if !ready(n) {
			lost[name] = true
		}
	}
	v.Leases = read(ctx, v, "leases in namespace "+corev1.NamespaceNodeLease, lost, client.CoordinationV1().Leases(corev1.NamespaceNodeLease))
}

func ready(n *corev1.Node) bool {
	c := why.NodeReady(n)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readAgents reads nodeagent's pods. A tenant may give pods of its own the same labels: they are taken where nodeagent is installed.
func readAgents(ctx context.Context, client kubernetes.Interface, v *why.View) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: why.AgentSelector})
	if apierrors.IsForbidden(err) {
		pods, err = client.CoreV1().Pods(usualNamespace).List(ctx, metav1.ListOptions{LabelSelector: why.AgentSelector})
	}
	if err != nil {
		unread(v, agentsOf, err)
		return
	}
	byNamespace := make(map[string][]*corev1.Pod)
	for i := range pods.Items {
		p := &pods.Items[i]
		if o := metav1.GetControllerOf(p); o != nil && o.Kind == "DaemonSet" {
			byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
		}
	}
	all := slices.Sorted(maps.Keys(byNamespace))
	home, err := agentsNamespace(ctx, client, all)
	if err != nil {
		v.Unread = append(v.Unread, why.Unread{What: "get clusterrolebinding " + bindingName, Why: reason(err),
			Effect: "pods in namespaces " + strings.Join(all, ", ") + " look like nodeagent's, and whether nodeagent is Ready is not known"})
		return
	}
	v.Agents = make(map[string]*corev1.Pod)
	for _, p := range byNamespace[home] {
		// Of two, as while one is replaced, the one that stays.
		if have := v.Agents[p.Spec.NodeName]; have == nil || have.DeletionTimestamp != nil {
			v.Agents[p.Spec.NodeName] = p
		}
	}
}

// agentsNamespace returns in which of some namespaces nodeagent is installed, "" for none: the usual one, else that of the account to
// which its ClusterRoleBinding gives its permissions. Who may not read that is told of the only one, if there is one.
func agentsNamespace(ctx context.Context, client kubernetes.Interface, all []string) (string, error) {
	if len(all) == 0 || slices.Contains(all, usualNamespace) {
		return usualNamespace, nil
	}
	switch binding, err := client.RbacV1().ClusterRoleBindings().Get(ctx, bindingName, metav1.GetOptions{}); {
	case err == nil && len(binding.Subjects) > 0:
		return binding.Subjects[0].Namespace, nil
	case apierrors.IsForbidden(err) && len(all) == 1:
		return all[0], nil
	case err == nil, apierrors.IsNotFound(err):
		return "", nil // nobody has installed it
	default:
		return "", err
	}
}

// bindingName is that of the ClusterRoleBinding in deploy/daemonset.yaml and in the chart.
const bindingName = "nodeagent"

// usualNamespace is the agent's in deploy/daemonset.yaml.
const usualNamespace = "nodeagent-system"

// readClaims reads the claims of pods whose node is not ready, and their volumes.
func readClaims(ctx context.Context, client kubernetes.Interface, v *why.View) {
	byNamespace := make(map[string]map[string]bool)
	for _, p := range v.Pods {
		if n := v.Nodes[p.Spec.NodeName]; n == nil || ready(n) {
			continue
		}
		for _, vol := range p.Spec.Volumes {
			if c := vol.PersistentVolumeClaim; c != nil {
				if byNamespace[p.Namespace] == nil {
					byNamespace[p.Namespace] = make(map[string]bool)
				}
				byNamespace[p.Namespace][c.ClaimName] = true
			}
		}
	}
	v.Claims = make(map[string]*corev1.PersistentVolumeClaim)
	volumes := make(map[string]bool)
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		for name, c := range read(ctx, v, "persistentvolumeclaims in namespace "+namespace, byNamespace[namespace],
			client.CoreV1().PersistentVolumeClaims(namespace)) {
			v.Claims[namespace+"/"+name] = c
			if c.Spec.VolumeName != "" {
				volumes[c.Spec.VolumeName] = true
			}
		}
	}
	v.Volumes = read(ctx, v, "persistentvolumes", volumes, client.CoreV1().PersistentVolumes())
}

// Explain puts an error of the list of pods into a sentence with the next step.
func Explain(err error, q Query) string {
	if apierrors.IsForbidden(err) {
		hint := "use -n NAMESPACE, or ask for that permission"
		if q.Namespace != "" {
			hint = "ask for that permission"
		}
		return fmt.Sprintf("you may not list pods in %s: %s", cmp.Or(q.Namespace, "all namespaces"), hint)
	}
	words := strings.TrimSpace(reason(err))
	if errors.Is(err, context.DeadlineExceeded) {
		words += "; kubectl get --raw /readyz says whether it is well"
	}
	return words
}
