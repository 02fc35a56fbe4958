{{/* The namespace of everything that is not cluster-wide. */}}
{{- define "nodeagent.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* Labels of all objects. The names are fixed: a cluster has one nodeagent. */}}
{{- define "nodeagent.labels" -}}
app.kubernetes.io/name: nodeagent
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" "app.kubernetes.io/component" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image's name. */}}
{{- define "nodeagent.image" -}}
{{ .Values.global.imageRegistry | default .Values.image.registry }}/{{ .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What is known of a platform: where containerd's socket, the kubelet's directory and its certificate are on a node.
What is not there nodeagent looks for itself. */}}
{{- define "nodeagent.platforms" -}}
k3s:
  socket: /run/k3s/containerd/containerd.sock
  rootDir: /var/lib/kubelet
rke2:
  socket: /run/k3s/containerd/containerd.sock
  rootDir: /var/lib/kubelet
k0s:
  socket: /run/k0s/containerd.sock
  rootDir: /var/lib/k0s/kubelet
microk8s:
  socket: /var/snap/microk8s/common/run/containerd.sock
  rootDir: /var/snap/microk8s/common/var/lib/kubelet
talos:
  socket: /run/containerd/containerd.sock
  rootDir: /var/lib/kubelet
bottlerocket:
  rootDir: /var/lib/kubelet
gke:
  quota: true
aks:
  certFile: /etc/kubernetes/certs/kubeletserver.crt
{{- end }}

{{/* The environment that says where things are on the node. */}}
{{- define "nodeagent.paths" -}}
{{- $platform := get (include "nodeagent.platforms" . | fromYaml) .Values.platform | default dict -}}
{{- with .Values.containerd.socket | default (get $platform "socket") }}
- name: CONTAINERD_SOCKET
  value: /proc/1/root{{ . }}
{{- end }}
{{- with .Values.kubelet.rootDir | default (get $platform "rootDir") }}
- name: KUBELET_DIR
  value: {{ . }}
{{- end }}
{{- with .Values.kubelet.certFile | default (get $platform "certFile") }}
- name: KUBELET_CERT_FILE
  value: {{ . }}
{{- end }}
{{- end }}

{{/* Values that contradict each other, or what nodeagent is. */}}
{{- define "nodeagent.check" -}}
{{- if eq .Values.platform "openshift" }}
{{- fail "platform openshift: its nodes run CRI-O. nodeagent reads containerd only, and would never be ready there." }}
{{- end }}
{{- if and .Values.admissionPolicy.required (not .Values.admissionPolicy.enabled) }}
{{- fail "admissionPolicy.required needs admissionPolicy.enabled: without the policies nodeagent would write nothing." }}
{{- end }}
{{- end }}
