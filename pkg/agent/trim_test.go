package agent

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// poison writes a text into each string of a value, one element into each list, and follows each pointer.
func poison(v reflect.Value, text string, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		poison(v.Elem(), text, depth+1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.Time{Time: time.Unix(1000, 0)}))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				poison(v.Field(i), text, depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		poison(v.Index(0), text, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		poison(key, text, depth+1)
		poison(value, text, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// Whatever string of a pod has a mebibyte, next to nothing of it is kept: of one that terminates, and of one that does not.
func TestTrimKeepsShortStrings(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	for name, change := range map[string]func(p *corev1.Pod){
		"every string":    func(*corev1.Pod) {},
		"not terminating": func(p *corev1.Pod) { p.DeletionTimestamp = nil },
		"what is looked at": func(p *corev1.Pod) {
			p.Status.Conditions[0].Type = verdict.ConditionType
			p.Annotations = map[string]string{}
			p.Labels = map[string]string{"pod-template-hash": text}
			v := corev1.Volume{Name: text, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: text}}}
			p.Spec.Volumes = []corev1.Volume{v}
			for _, h := range []*corev1.LifecycleHandler{p.Spec.Containers[0].Lifecycle.PreStop, p.Spec.InitContainers[0].Lifecycle.PostStart} {
				h.Exec.Command, h.HTTPGet.Host = []string{"/bin/" + text, "-c", "sleep 1"}, ""
			}
			for _, s := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
				s[0].State.Waiting.Reason = "CrashLoopBackOff"
			}
		},
		"how it waits": func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated, p.Status.ContainerStatuses[0].State.Running = nil, nil
		},
		"of a driver": func(p *corev1.Pod) {
			p.Status.Conditions[0].Type = corev1.PodReady
			p.Spec.Volumes = []corev1.Volume{{Name: text, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/plugins/" + text}}}}
		},
	} {
		p := new(corev1.Pod)
		poison(reflect.ValueOf(p).Elem(), text, 0)
		if len(p.Spec.Containers[0].Lifecycle.PreStop.Exec.Command[0]) < 1<<20 || p.OwnerReferences[0].Controller == nil {
			t.Fatal("the pod is not poisoned")
		}
		change(p)
		obj, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		out := obj.(*corev1.Pod)
		if n := out.Size(); n > 64<<10 {
			t.Errorf("%s: %d bytes are kept", name, n)
		}
		if s := subject(out); s.Owner != "" || s.Workload.Type != "barepod" {
			t.Errorf("%s: what was cut names an owner: %+v", name, s)
		}
		if p.DeletionTimestamp == nil {
			continue
		}
		for _, c := range Seed(out).Containers {
			if len(c.Name)+len(c.PreStopProgram)+len(c.PostStartProgram)+len(c.SaidID) > 0 {
				t.Errorf("%s: what was cut is taken for a name: %+v", name, c)
			}
		}
	}
}
