package why

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/finalizer"
	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// A NamespaceView is what was read of a namespace that is being deleted.
type NamespaceView struct {
	Now       time.Time
	Namespace *corev1.Namespace
	// Left are the objects that are left in it.
	Left []Object
	// Services are the APIServices that are not available: what is left of their kinds nobody knows.
	Services []APIService
	Unread   []Unread
}

// An Object is one that is left in a namespace.
type Object struct {
	Resource   string   `json:"resource"` // such as configmaps, or widgets.example.com
	Name       string   `json:"name"`
	Finalizers []string `json:"finalizers,omitempty"`
	// Setters are who has put the finalizers there, by managedFields.
	Setters []string `json:"setBy,omitempty"`
	// Deleted is when its deletion was asked for, zero for never.
	Deleted time.Time `json:"deletedAt,omitzero"`
}

// ObjectOf returns what is to be known of an object that is left.
func ObjectOf(resource string, m *metav1.PartialObjectMetadata) Object {
	o := Object{Resource: resource, Name: m.Name, Finalizers: m.Finalizers}
	if m.DeletionTimestamp != nil {
		o.Deleted = m.DeletionTimestamp.UTC()
	}
	for _, s := range finalizer.Setters(m.ManagedFields, m.Finalizers) {
		who := fmt.Sprintf("%q", s.Manager)
		if len(m.Finalizers) > 1 {
			who += ": " + s.Finalizer
		}
		if !s.Changed.IsZero() {
			who += " at " + clock(s.Changed)
		}
		o.Setters = append(o.Setters, who)
	}
	return o
}

// An APIService is one that is not available.
type APIService struct {
	Name    string    `json:"name"` // such as v1beta1.metrics.k8s.io
	Service string    `json:"service,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// A NamespaceAnswer says why a namespace is still there.
type NamespaceAnswer struct {
	Name    string       `json:"name"`
	Deleted time.Time    `json:"deletedAt,omitzero"`
	Message string       `json:"message"`
	Seen    []string     `json:"seen,omitempty"`
	Left    []Object     `json:"left,omitempty"`
	Down    []APIService `json:"unavailable,omitempty"`
	Fix     string       `json:"fix,omitempty"`
	Avoid   string       `json:"avoid,omitempty"`
	// Held says that something holds it, beside its age.
	Held bool `json:"held"`
}

// failures are the namespace controller's conditions that say what failed
// (NamespaceDeletion… and Namespace…Remaining, k8s.io/api/core/v1).
var failures = []corev1.NamespaceConditionType{
	corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure, corev1.NamespaceDeletionContentFailure,
	corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining,
}

// JudgeNamespace answers for a namespace that is being deleted.
func JudgeNamespace(v *NamespaceView) NamespaceAnswer {
	a := NamespaceAnswer{Name: v.Namespace.Name, Left: v.Left, Down: v.Services}
	if v.Namespace.DeletionTimestamp == nil {
		a.Message = "The namespace is not being deleted."
		return a
	}
	a.Deleted = v.Namespace.DeletionTimestamp.UTC()
	for _, c := range v.Namespace.Status.Conditions {
		if c.Status == corev1.ConditionTrue && slices.Contains(failures, c.Type) {
			a.Seen = append(a.Seen, fmt.Sprintf("%s since %s: %s", c.Type, clock(c.LastTransitionTime.Time), c.Message))
		}
	}
	parts := a.parts(v)
	a.Held = len(parts) > 0
	switch {
	case a.Held:
		for _, p := range parts {
			a.Message, a.Fix = strings.TrimSpace(a.Message+" "+p.says), strings.TrimSpace(a.Fix+" "+p.fix)
		}
	case len(v.Left) > 0:
		a.Message = objects(len(v.Left)) + " left, and nothing is known to hold them: the namespace controller is still at work."
	default:
		a.Message = "Nothing is left: the namespace controller will finish soon."
	}
	a.Avoid = "Do not PUT to /finalize or remove spec.finalizers: that deletes the namespace only. What is left in it becomes orphaned in etcd, with its " +
		"volumes and load balancers."
	return a
}

// A part is one thing that holds a namespace up, and what to do about it.
type part struct{ says, fix string }

// parts returns what holds a namespace up: first what keeps the namespace controller from deleting at all, then what it waits for.
func (a *NamespaceAnswer) parts(v *NamespaceView) (parts []part) {
	parts = append(undiscovered(v), refused(v)...)
	var held []Object
	pods, deleted := 0, 0
	for _, o := range v.Left {
		if o.Resource != "pods" {
			continue
		}
		if pods++; !o.Deleted.IsZero() {
			deleted++
		}
	}
	for _, o := range v.Left {
		// What nobody has asked to delete yet waits for what comes before it, and a claim for the pods that use it.
		waits := o.Deleted.IsZero() || pods > 0 && slices.Equal(o.Finalizers, []string{"kubernetes.io/pvc-protection"})
		if len(o.Finalizers) > 0 && !waits && o.Resource != "pods" {
			held = append(held, o)
		}
	}
	if deleted > 0 {
		parts = append(parts, part{
			fmt.Sprintf("%s left, %s, which must end first.", objects(len(v.Left)), count(deleted, "terminating pod", "terminating pods")),
			"See what holds the pods: kubectl why-terminating -n " + inCommand(a.Name, "NAMESPACE") + ".",
		})
	}
	if len(held) > 0 {
		parts = append(parts, part{
			fmt.Sprintf("%s kept by finalizers; the first is %s (%s).", objects(len(held)), held[0], strings.Join(held[0].Finalizers, ", ")),
			"Check that the controller of each finalizer runs. If it ran in this namespace, it was deleted too: redeploy it in another one. It removes its " +
				"finalizer when its cleanup is done.",
		})
	}
	own := slices.Clone(v.Namespace.Finalizers)
	for _, f := range v.Namespace.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			own = append(own, string(f))
		}
	}
	if len(own) > 0 {
		parts = append(parts, part{"The namespace itself has finalizers: " + strings.Join(own, ", ") + ".", "Check that their controllers run."})
	}
	if len(parts) > 0 {
		return parts
	}
	switch {
	case v.failing(corev1.NamespaceDeletionContentFailure) != "", v.failing(corev1.NamespaceDeletionGVParsingFailure) != "":
		parts = append(parts, part{"The namespace controller fails to delete the content of the namespace: see Seen.",
			"Repair what the message names."})
	case len(v.Unread) > 0:
		parts = append(parts, part{"What holds the namespace is among the objects that could not be listed.",
			"Run the command with the permission to list them, or repair what the errors name."})
	}
	return parts
}

// failing returns the message of a condition of the namespace that is True, "" for none.
func (v *NamespaceView) failing(kind corev1.NamespaceConditionType) string {
	for _, c := range v.Namespace.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, "no message")
		}
	}
	return ""
}

// undiscovered says which groups the API server cannot list the kinds of. Their APIServices may not have been readable.
func undiscovered(v *NamespaceView) []part {
	message := v.failing(corev1.NamespaceDeletionDiscoveryFailure)
	if message == "" {
		return nil
	}
	const find = "Find the APIService that is not available, and bring the Service behind it back: kubectl get apiservices."
	if len(v.Services) == 0 {
		which := ""
		if groups := each(undiscoveredGroup, message); len(groups) > 0 {
			which = " of " + few(groups)
		}
		return []part{{"The API server cannot list the kinds" + which + ", so it cannot list their objects, and the namespace remains.", find}}
	}
	s := v.Services[0]
	fix := "Bring the Service behind it back"
	if s.Service != "" {
		fix += " (" + s.Service + ")"
	}
	return []part{{
		fmt.Sprintf("APIService %s is not available (%s), so the API server cannot list the objects of its kinds, and the namespace remains.", s.Name, s.Reason),
		fix + fmt.Sprintf(". If the add-on that registered it was removed for good: kubectl delete apiservice %s. The namespace controller then continues "+
			"within minutes.", inCommand(s.Name, "NAME")),
	}}
}

// What the namespace controller's messages name (namespaced_resources_deleter.go, pkg/controller/namespace/deletion, with the errors of the API
// server: staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook and policy, and apiextensions-apiserver's conversion).
var (
	undiscoveredGroup = regexp.MustCompile(`[ :]([a-z0-9][-a-z0-9.]*/v[a-z0-9]+): `)
	webhookFails      = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	webhookDenies     = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policyDenies      = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request`)
	conversionFails   = regexp.MustCompile(`conversion webhook for ([a-z0-9][-a-z0-9.]*/v[a-z0-9]+, Kind=[A-Za-z0-9]+) failed`)
)

// refused says by whom the deletion of what is left is refused: what it names has to be repaired before pods and finalizers matter.
func refused(v *NamespaceView) (parts []part) {
	message := v.failing(corev1.NamespaceDeletionContentFailure)
	if names := each(webhookFails, message); len(names) > 0 {
		parts = append(parts, part{
			"The API server cannot call " + webhooks(names) + ", so it rejects the deletion of objects in the namespace.",
			"Bring the Service of the webhook back, or let its configuration leave this namespace out (namespaceSelector). Find the configuration: " +
				"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml.",
		})
	}
	if names := each(webhookDenies, message); len(names) > 0 {
		parts = append(parts, part{
			"The deletion of objects in the namespace is denied by " + webhooks(names) + ".",
			"Do what its answer asks for: see Seen. Or ask its owner to let the deletion pass.",
		})
	}
	if names := each(policyDenies, message); len(names) > 0 {
		parts = append(parts, part{
			"The deletion of objects in the namespace is denied by ValidatingAdmissionPolicy " + few(names) + ".",
			"Do what its answer asks for: see Seen. Or ask its owner to let the deletion pass.",
		})
	}
	if kinds := each(conversionFails, message); len(kinds) > 0 {
		parts = append(parts, part{
			"The API server cannot call the conversion webhook of " + few(kinds) + ", so it can neither list nor delete its objects.",
			"Bring the Service of that webhook back: the CustomResourceDefinition names it in spec.conversion.",
		})
	}
	return parts
}

// webhooks names some webhooks.
func webhooks(names []string) string {
	if len(names) == 1 {
		return "webhook " + names[0]
	}
	return "webhooks " + few(names)
}

// each returns what a pattern finds in a message, each once and in words of ours: a name, or a quotation.
func each(pattern *regexp.Regexp, message string) (out []string) {
	for _, m := range pattern.FindAllStringSubmatch(message, -1) {
		name := m[1]
		if !named.MatchString(name) {
			name = strconv.QuoteToASCII(name)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// named is what needs no quotation marks: a name of an object, a group with its version, and a kind behind it.
var named = regexp.MustCompile(`^[a-z0-9][-a-z0-9./]{0,251}(?:, Kind=[A-Za-z0-9]{1,63})?$`)

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func objects(n int) string { return count(n, "object is", "objects are") }

// String names an object as kubectl takes it.
func (o Object) String() string {
	if !objectName.MatchString(o.Name) { // as that of a Role, which may be a sentence
		return fmt.Sprintf("%s/%q", o.Resource, o.Name)
	}
	return o.Resource + "/" + o.Name
}

// mostLeft is how many objects are printed.
const mostLeft = 20

// Namespace prints all that is known of a namespace.
func (s Style) Namespace(w io.Writer, a *NamespaceAnswer, v *NamespaceView) {
	head := "namespace " + a.Name
	if !a.Deleted.IsZero() {
		head += " has been terminating for " + Age(v.Now.Sub(a.Deleted)) + "."
	}
	fmt.Fprintln(w, s.bold(terminal.Printable(head)))
	fmt.Fprintln(w)
	s.line(w, "Why", a.Message)
	for _, seen := range a.Seen {
		s.line(w, "Seen", seen)
	}
	for i, o := range a.Left {
		if i == mostLeft {
			s.line(w, "Remaining", fmt.Sprintf("and %d more", len(a.Left)-mostLeft))
			break
		}
		text := o.String()
		if len(o.Finalizers) > 0 {
			text += ", finalizers: " + strings.Join(o.Finalizers, ", ")
		}
		if len(o.Setters) > 0 {
			text += " (set by " + strings.Join(o.Setters, "; ") + ")"
		}
		s.line(w, "Remaining", text)
	}
	for _, d := range a.Down {
		s.line(w, "Unavailable", fmt.Sprintf("APIService %s since %s: %s", d.Name, clock(d.Since), d.Message))
	}
	s.fix(w, a.Fix)
	s.avoid(w, a.Avoid)
	if len(v.Unread) > 0 {
		fmt.Fprintln(w)
	}
	s.unread(w, v.Unread)
}
