package scenario

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// pod is a specification of one container.
func pod(grace int64, image string, command ...string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers:                    []corev1.Container{{Name: "main", Image: image, Command: command}},
	}
}

// victim is a specification of one container of test/victim.
func victim(grace int64, command ...string) corev1.PodSpec {
	return pod(grace, bed.VictimImage, append([]string{"/victim"}, command...)...)
}

// withVolume mounts a volume at /data in all containers.
func withVolume(spec corev1.PodSpec, name string, source corev1.VolumeSource) corev1.PodSpec {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/data"})
	}
	return spec
}

func hostPath(path string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
}
