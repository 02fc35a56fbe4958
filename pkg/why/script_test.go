package why

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/hostile"
)

func TestScript(t *testing.T) {
	lost := node(corev1.ConditionUnknown, 4*time.Minute)
	v := view(lost, pod(time.Hour))
	v.Pods = nil
	for name, change := range map[string]func(*corev1.Pod){
		"plain": func(p *corev1.Pod) {
			is := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &is}}
			p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		},
		"stateful":  func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet"}} },
		"finalizer": func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} },
		"volume": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		},
		"ephemeral": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		},
		"iscsi": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "lun", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}}}
		},
		"set": func(p *corev1.Pod) {
			is := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Controller: &is}}
		},
		"told": func(p *corev1.Pod) { p.Spec.NodeName = "n2" },
	} {
		v.Pods = append(v.Pods, pod(time.Hour, change, func(p *corev1.Pod) { p.Name, p.UID = name, types.UID("uid-"+name) }))
	}
	v.Nodes["n2"] = node(corev1.ConditionTrue, time.Hour)
	var b strings.Builder
	Script(&b, "n1", " --context=prod", Judge(v), v)
	var commands []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	if n := len(commands); n != 8 || !strings.HasPrefix(commands[0], `[ "$CONFIRMED_OFF" = n1 ] || `) ||
		!strings.HasPrefix(commands[6], "lost && echo '") || !strings.Contains(commands[6], `"uid":"uid-plain"`) ||
		!strings.Contains(commands[2], "kubectl --context=prod get node n1 ") || !strings.Contains(commands[2], `[ "$state" = "Unknown" ]`) ||
		commands[7] != "kubectl --context=prod delete --raw /api/v1/namespaces/shop/pods/plain -f -" {
		t.Errorf("commands %q", commands)
	}
	for _, reason := range []string{"its StatefulSet starts the same pod again", "finalizers, which a force delete does not remove: example.com/x",
		"it uses the volume of claim data", "it uses the volume of claim ephemeral-scratch", "it uses volume lun", "its CloneSet may start the same pod again",
		"its node is not lost", "Commands: 1. Pods left out: 7."} {
		if !strings.Contains(b.String(), reason) {
			t.Errorf("%q is not said:\n%s", reason, b.String())
		}
	}
}

// A machine whose agent has written since its kubelet was lost runs: none of its pods is deleted, whichever the agent wrote about, and whatever else stands
// beside them.
func TestScriptOfALivingMachine(t *testing.T) {
	for name, told := range map[string]func(*corev1.Pod){
		"a verdict":          told("UninterruptibleSleep", verdictMessage, 30*time.Second),
		"that it is in time": toldNotStuck,
		"another verdict of one that began before": func(p *corev1.Pod) {
			told("UninterruptibleSleep", verdictMessage, time.Hour)(p)
			wrote(30 * time.Second)(p)
		},
	} {
		v := view(node(corev1.ConditionUnknown, 10*time.Minute), pod(time.Hour, told))
		v.Pods = append(v.Pods, pod(time.Hour, func(p *corev1.Pod) { p.Name, p.UID = "b", "u2" }))
		var b strings.Builder
		Script(&b, "n1", "", Judge(v), v)
		if strings.Contains(b.String(), "delete --raw") || !strings.Contains(b.String(), "the machine ran then") {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}

// Where nodes could not be read, nothing is lost or not lost.
func TestScriptWithoutNodes(t *testing.T) {
	v := view(nil, pod(time.Hour))
	v.Nodes, v.Namespace, v.Unread = nil, "shop", []Unread{{What: "get nodes", Why: "forbidden"}}
	var b strings.Builder
	Script(&b, "n1", "", Judge(v), v)
	for _, want := range []string{"# Left out: its node could not be read.", "# Not read: get nodes (forbidden).", "of node n1 in namespace shop,"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
}

// Whatever others chose stands behind #.
func TestScriptIsOurs(t *testing.T) {
	for what, text := range hostile.Texts() {
		v := view(node(corev1.ConditionUnknown, 4*time.Minute), pod(time.Hour, func(p *corev1.Pod) {
			p.Name, p.UID, p.Namespace, p.Finalizers = text, types.UID(text), text, []string{text}
		}))
		var b strings.Builder
		Script(&b, text, "", Judge(v), v)
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, hostile.Mark) && !strings.HasPrefix(line, "#") {
				t.Errorf("%s: %q", what, line)
			}
		}
	}
}

// A pod that would be deleted but for one name that the API server does not take is left out.
func TestScriptTakesNamesOnly(t *testing.T) {
	for field, set := range map[string]func(*corev1.Pod, string){
		"name":      func(p *corev1.Pod, s string) { p.Name = s },
		"namespace": func(p *corev1.Pod, s string) { p.Namespace = s },
		"UID":       func(p *corev1.Pod, s string) { p.UID = types.UID(s) },
		"node":      func(p *corev1.Pod, s string) { p.Spec.NodeName = s },
	} {
		script := func(text string) string {
			v := view(node(corev1.ConditionUnknown, 4*time.Minute), pod(time.Hour, func(p *corev1.Pod) { set(p, text) }))
			var b strings.Builder
			Script(&b, v.Pods[0].Spec.NodeName, "", Judge(v), v)
			return b.String()
		}
		if got := script("n1"); !strings.Contains(got, "delete --raw") {
			t.Fatalf("a plain %s is left out:\n%s", field, got)
		}
		for what, text := range hostile.Texts() {
			if got := script(text); strings.Contains(got, "delete --raw") || !strings.Contains(got, "its name is none that the API server takes") {
				t.Errorf("%s as %s: %.400q", what, field, got)
			}
		}
	}
}
