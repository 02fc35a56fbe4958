package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The kubelet's reasons for a container that does not run: of which of them it does nothing before it tries again, and
// during which it may be pulling an image.
func TestWaitingReasons(t *testing.T) {
	for reason, want := range map[string]struct{ backedOff, mayPull bool }{
		"ContainerCreating": {false, true}, "PodInitializing": {false, true}, "": {false, true},
		"ErrImagePull": {false, true}, "RegistryUnavailable": {false, true}, "SignatureValidationFailed": {false, true},
		"ImagePullBackOff": {true, false}, "CrashLoopBackOff": {true, false},
		"ErrImageNeverPull": {true, true}, "InvalidImageName": {true, true}, "ImageInspectError": {true, true},
		"CreateContainerConfigError": {true, true}, "PreCreateHookError": {true, true}, "CreateContainerError": {true, true},
		"PreStartHookError": {true, true}, "RunContainerError": {true, true},
	} {
		p := terminating("a", time.Unix(1000, 0), 30)
		p.Spec.Containers = []corev1.Container{{Name: "web"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}},
		}}
		for _, form := range []string{"whole", "trimmed"} {
			if form == "trimmed" {
				trimmed, err := Trim(p)
				if err != nil {
					t.Fatal(err)
				}
				p = trimmed.(*corev1.Pod)
			}
			c := Seed(p).Containers[0]
			if !c.Waiting || c.BackedOff != want.backedOff || mayPull(p) != want.mayPull {
				t.Errorf("%s, %s: waits %t, backed off %t, may pull %t, want %+v", reason, form, c.Waiting, c.BackedOff, mayPull(p), want)
			}
		}
	}
}
