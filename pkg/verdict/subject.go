package verdict

import (
	"regexp"
	"time"
)

// ConditionType is the type of the condition that carries the verdict.
const ConditionType = "nodeagent.io/TerminationBlocked"

// Resolved is its reason when the cause that stood is gone.
const Resolved = "Resolved"

// FieldManager is the field manager of what the agent writes.
const FieldManager = "nodeagent"

// A Kind is the kind of object that a verdict is about.
type Kind string

// The kinds, as the API server calls them.
const (
	Pod  Kind = "Pod"
	Node Kind = "Node"
)

// A Subject is what a verdict is about, and what an Event is told on. The object
// itself need not exist any more.
type Subject struct {
	Kind      Kind
	Namespace string // "" for a node
	Name      string
	UID       string
	// EventUID is the UID by which `kubectl describe` looks for the Events of a mirror
	// pod, that of its static pod; "" for UID.
	EventUID   string
	Generation int64
	// Owner is the UID of the controller that made it, "" for none.
	Owner string
	// Workload is what it belongs to, by name and type as in the recording rules of the
	// Kubernetes mixin (namespace_workload_pod): web of deployment, web-0 of barepod.
	Workload Workload
	// Condition is the object's condition of type ConditionType as the cache
	// last showed it; nil for none. The cache may lag behind.
	Condition *Condition
}

// A Workload is a controller, or a pod that has none. Type is its kind in lower case, or barepod or staticpod.
type Workload struct{ Name, Type string }

// A Condition is the state of one condition of an object. Its type is
// ConditionType.
type Condition struct {
	Blocked    bool // status True or False
	Reason     string
	Message    string
	Generation int64 // observedGeneration
	// Since is when Blocked last changed (lastTransitionTime), in whole seconds
	// where it comes from the API server.
	Since time.Time
}

// How a pod with a verdict has ended, as its node shows it after the pod was deleted.
const (
	EndedClean  = "clean"  // nothing was left on the node
	EndedLeft   = "left"   // something was
	EndedUnread = "unread" // that could not be read, or does not follow from the object
)

// The annotations by which the kubelet marks a mirror pod and names the manifest of its static pod.
const (
	MirrorAnnotation = "kubernetes.io/config.mirror"
	HashAnnotation   = "kubernetes.io/config.hash"
)

// manifestHash is what the kubelet makes the UID of a static pod of: an MD5 sum
// (applyDefaults, pkg/kubelet/config/common.go).
var manifestHash = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NodeUID returns the UID under which the node knows a pod with that UID and those annotations: its own, or for
// the mirror pod of a static pod the hash of its manifest.
//
// Who may create pods may set these annotations. The UID of a pod that was made through
// the API, which is no such hash, is not taken from them: the processes of one pod would be
// told of on another one.
func NodeUID(uid string, annotations map[string]string) (node string, mirror bool) {
	_, mirror = annotations[MirrorAnnotation]
	if hash := annotations[HashAnnotation]; mirror && manifestHash.MatchString(hash) {
		return hash, true
	}
	return uid, mirror
}
