// Package deploy_test checks the manifests: that they are what the API server
// takes, and that they ask for no more than the agent needs.
package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const (
	namespace = "nodeagent-system"
	name      = "nodeagent"
)

// read decodes the documents of a file into objects of their types, by kind and name, and wants no others.
// A field that the type does not have is an error.
func read(t *testing.T, file string, into map[string]any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(b), "\n---\n")
	if len(docs) != len(into) {
		t.Fatalf("%s has %d documents, not %d", file, len(docs), len(into))
	}
	for _, doc := range docs {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into[o.Kind+" "+o.Name]); err != nil {
			t.Errorf("%s, %s %s: %v", file, o.Kind, o.Name, err)
		}
	}
}

type manifest struct {
	namespace corev1.Namespace
	account   corev1.ServiceAccount
	role      rbacv1.ClusterRole
	binding   rbacv1.ClusterRoleBinding
	pods      policy
	events    policy
	condition policy
	set       appsv1.DaemonSet
}

type policy struct {
	admissionv1.ValidatingAdmissionPolicy
	binding admissionv1.ValidatingAdmissionPolicyBinding
	// evaluatesMatches reports whether a test evaluates its match conditions, too.
	evaluatesMatches bool
}

func daemonset(t *testing.T) *manifest {
	t.Helper()
	var m manifest
	into := map[string]any{
		"Namespace " + namespace: &m.namespace, "ServiceAccount " + name: &m.account, "ClusterRole " + name: &m.role,
		"ClusterRoleBinding " + name: &m.binding, "DaemonSet " + name: &m.set,
	}
	for name, p := range map[string]*policy{"nodeagent-own-node": &m.pods, "nodeagent-own-events": &m.events, "nodeagent-own-condition": &m.condition} {
		into["ValidatingAdmissionPolicy "+name], into["ValidatingAdmissionPolicyBinding "+name] = &p.ValidatingAdmissionPolicy, &p.binding
	}
	read(t, "daemonset.yaml", into)
	return &m
}

func TestKinds(t *testing.T) {
	m := daemonset(t)
	type object struct {
		meta      metav1.TypeMeta
		object    metav1.ObjectMeta
		gvk       schema.GroupVersionKind
		namespace string
		name      string
	}
	var policies []object
	for name, p := range map[string]policy{"nodeagent-own-node": m.pods, "nodeagent-own-events": m.events, "nodeagent-own-condition": m.condition} {
		policies = append(policies,
			object{p.TypeMeta, p.ObjectMeta, admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), "", name},
			object{p.binding.TypeMeta, p.binding.ObjectMeta, admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), "", name})
	}
	for _, c := range append(policies, []object{
		{m.namespace.TypeMeta, m.namespace.ObjectMeta, corev1.SchemeGroupVersion.WithKind("Namespace"), "", namespace},
		{m.account.TypeMeta, m.account.ObjectMeta, corev1.SchemeGroupVersion.WithKind("ServiceAccount"), namespace, name},
		{m.role.TypeMeta, m.role.ObjectMeta, rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", name},
		{m.binding.TypeMeta, m.binding.ObjectMeta, rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "", name},
		{m.set.TypeMeta, m.set.ObjectMeta, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), namespace, name},
	}...) {
		if got := c.meta.GroupVersionKind(); got != c.gvk {
			t.Errorf("%s is a %s, not a %s", c.name, got, c.gvk)
		}
		if c.object.Name != c.name || c.object.Namespace != c.namespace {
			t.Errorf("%s is called %s/%s", c.gvk.Kind, c.object.Namespace, c.object.Name)
		}
		if c.object.Labels["app.kubernetes.io/name"] != name {
			t.Errorf("%s %s lacks its label", c.gvk.Kind, c.name)
		}
	}
}

// The role is compared whole: whoever adds to it has to do so here too.
func TestRoleIsMinimal(t *testing.T) {
	m := daemonset(t)
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "get", "list", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/healthz"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	}
	if diff := cmp.Diff(want, m.role.Rules); diff != "" {
		t.Errorf("role differs (-want +got):\n%s", diff)
	}
	if want := (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: m.role.Name}); m.binding.RoleRef != want {
		t.Errorf("binding to %+v", m.binding.RoleRef)
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}, m.binding.Subjects); diff != "" {
		t.Errorf("subjects differ (-want +got):\n%s", diff)
	}
}

func TestContainerIsMinimal(t *testing.T) {
	pod := daemonset(t).set.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%d containers, %d init containers", len(pod.Containers), len(pod.InitContainers))
	}
	if !pod.HostPID || pod.HostNetwork || pod.HostIPC {
		t.Errorf("hostPID %v hostNetwork %v hostIPC %v", pod.HostPID, pod.HostNetwork, pod.HostIPC)
	}
	c := pod.Containers[0]
	s := c.SecurityContext
	want := corev1.Capabilities{
		Drop: []corev1.Capability{"ALL"},
		Add:  []corev1.Capability{"SYS_PTRACE", "DAC_READ_SEARCH", "SYS_ADMIN"},
	}
	if diff := cmp.Diff(&want, s.Capabilities); diff != "" {
		t.Errorf("capabilities differ (-want +got):\n%s", diff)
	}
	if *s.Privileged || !*s.ReadOnlyRootFilesystem || *s.RunAsUser != 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context %+v", s)
	}
	if got := c.Resources.Limits.Memory().String(); got != "128Mi" {
		t.Errorf("memory limit %s", got)
	}
	if diff := cmp.Diff([]corev1.ContainerPort{{Name: "metrics", ContainerPort: 9732}}, c.Ports); diff != "" {
		t.Errorf("ports differ (-want +got):\n%s", diff)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("probe %+v", p)
		}
	}
	// On a node short of processors answers have taken more than 5 s, four times in a row.
	if p := c.LivenessProbe; p.TimeoutSeconds < 20 || p.FailureThreshold*p.PeriodSeconds < 180 {
		t.Errorf("the kubelet ends the agent where the node is slow: %+v", p)
	}
	if c.ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("image pull policy %s", c.ImagePullPolicy)
	}
}

// What the agent mounts must neither be writable nor hold on to what the node
// wants to unmount.
func TestMounts(t *testing.T) {
	pod := daemonset(t).set.Spec.Template.Spec
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Name == "token" {
			continue
		}
		if v.HostPath == nil {
			t.Errorf("volume %s is no host path", v.Name)
			continue
		}
		paths[v.Name] = v.HostPath.Path
	}
	if diff := cmp.Diff(map[string]string{"sys-fs": "/sys/fs", "cgroup": "/sys/fs/cgroup"}, paths); diff != "" {
		t.Errorf("host paths differ (-want +got):\n%s", diff)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("mount %s is writable", m.Name)
		}
		if m.Name == "token" {
			continue
		}
		if m.MountPath != paths[m.Name] {
			t.Errorf("%s is mounted on %s: the agent's defaults are the host's paths", m.Name, m.MountPath)
		}
		follows := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer
		if !follows && !strings.HasPrefix(m.MountPath, "/sys/") {
			t.Errorf("mount %s keeps what the host unmounts", m.Name)
		}
		// The API server refuses the two together.
		if follows && m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled {
			t.Errorf("mount %s is both recursively read-only and propagated", m.Name)
		}
	}
}

// Who executes something in the agent's container chooses no kubeconfig and no path there.
func TestContainerIsSealed(t *testing.T) {
	if env := daemonset(t).set.Spec.Template.Spec.Containers[0].Env; !slices.ContainsFunc(env,
		func(e corev1.EnvVar) bool { return e.Name == "NODEAGENT_SEALED" && e.Value != "" }) {
		t.Errorf("environment %+v", env)
	}
}

// A token that the kubelet mounts by itself asks for 3,607 seconds, by which the API
// server knows it, and lengthens it to a year
// (pkg/serviceaccount/claims.go, WarnOnlyBoundTokenExpirationPeriod).
func TestTokenExpires(t *testing.T) {
	pod := daemonset(t).set.Spec.Template.Spec
	if a := pod.AutomountServiceAccountToken; a == nil || *a {
		t.Error("the kubelet mounts a token by itself")
	}
	if a := daemonset(t).account.AutomountServiceAccountToken; a == nil || *a {
		t.Error("whatever pod names the account gets a token")
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "token" })
	if i < 0 || pod.Volumes[i].Projected == nil {
		t.Fatal("there is no volume for the token")
	}
	var got time.Duration
	var files []string
	for _, s := range pod.Volumes[i].Projected.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			files = append(files, s.ServiceAccountToken.Path)
			got = time.Duration(*s.ServiceAccountToken.ExpirationSeconds) * time.Second
		case s.ConfigMap != nil:
			files = append(files, s.ConfigMap.Items[0].Path)
		case s.DownwardAPI != nil:
			files = append(files, s.DownwardAPI.Items[0].Path)
		}
	}
	if diff := cmp.Diff([]string{"token", "ca.crt", "namespace"}, files); diff != "" || got != 8*time.Hour {
		t.Errorf("the token is good for %s, and the files differ (-want +got):\n%s", got, diff)
	}
	m := pod.Containers[0].VolumeMounts
	if i := slices.IndexFunc(m, func(m corev1.VolumeMount) bool { return m.Name == "token" }); i < 0 ||
		m[i].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("the token is not where client-go looks for it: %+v", m)
	}
}

func TestRunsEverywhere(t *testing.T) {
	set := daemonset(t).set
	pod := set.Spec.Template.Spec
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
		t.Errorf("tolerations differ (-want +got):\n%s", diff)
	}
	if pod.PriorityClassName != "system-node-critical" {
		t.Errorf("priority class %s", pod.PriorityClassName)
	}
	for k, v := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[k] != v {
			t.Errorf("the selector's %s=%s is not on the pods", k, v)
		}
	}
	env := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		if e.ValueFrom != nil {
			env[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	want := map[string]string{
		"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP",
		"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
	if got := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); got != "10%" {
		t.Errorf("maxUnavailable %s", got)
	}
}

// The policies are about the account that the agent runs as, and refuse.
func TestPolicies(t *testing.T) {
	m := daemonset(t)
	account := "system:serviceaccount:" + m.set.Namespace + ":" + m.set.Spec.Template.Spec.ServiceAccountName
	for _, p := range []policy{m.pods, m.events} {
		if c := p.Spec.MatchConditions; len(c) != 1 || c[0].Expression != `request.userInfo.username == "`+account+`"` {
			t.Errorf("policy %s is about %+v", p.Name, c)
		}
		if *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s lets pass what it cannot judge", p.Name)
		}
		if b := p.binding.Spec; b.PolicyName != p.Name || !slices.Contains(b.ValidationActions, admissionv1.Deny) || b.MatchResources != nil {
			t.Errorf("binding %+v", b)
		}
		for _, v := range p.Spec.Validations {
			if v.Message == "" {
				t.Errorf("no message for %s", v.Expression)
			}
		}
	}
}

// expressions are all that a policy checks, as one text.
func (p policy) expressions() string {
	var all strings.Builder
	for _, v := range p.Spec.Variables {
		fmt.Fprintln(&all, v.Expression)
	}
	for _, v := range p.Spec.Validations {
		fmt.Fprintln(&all, v.Expression)
	}
	return all.String()
}

// The agent may change one condition of a pod, which the policy knows, and no
// other field of its status: those too that an older API server does not have,
// since to it they are absent before and after.
func TestStatusIsHeld(t *testing.T) {
	pinned := daemonset(t).pods.expressions()
	if !strings.Contains(pinned, `"`+verdict.ConditionType+`"`) {
		t.Errorf("the policy does not know %s", verdict.ConditionType)
	}
	held(t, pinned, fullStatus(), "status.", "conditions")
	heldMetadata(t, pinned, "managedFields")
}

// It may change the series of its Events, and nothing else of them.
func TestEventsAreHeld(t *testing.T) {
	pinned := daemonset(t).events.expressions()
	held(t, pinned, fullEvent(), "", "metadata", "series")
	heldMetadata(t, pinned, "generateName", "managedFields")
	for _, whole := range []string{"!has(object.metadata.generateName)", "variables.managed.all(m,"} {
		if !strings.Contains(pinned, whole) {
			t.Errorf("the policy lacks %s", whole)
		}
	}
}

// No field of a new Event can be long: the API server itself bounds reason and
// note, and wants the deprecated fields empty
// (pkg/apis/core/validation/events.go, ValidateEventCreate).
func TestNewEventsAreSmall(t *testing.T) {
	pinned := daemonset(t).events.expressions()
	for _, field := range jsonNames(corev1.ObjectReference{}) {
		equal := regexp.MustCompile(`object\.regarding\.\??` + field + `(\.orValue\(""\))? == `)
		bounded := regexp.MustCompile(`object\.regarding\.\??` + field + `(\.orValue\(""\))?\.size\(\) <= `)
		if !equal.MatchString(pinned) && !bounded.MatchString(pinned) && !strings.Contains(pinned, "!has(object.regarding."+field+")") {
			t.Errorf("regarding.%s has no bound", field)
		}
	}
	for _, without := range []string{"related", "series", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences"} {
		if !strings.Contains(pinned, "!has(object."+without+")") {
			t.Errorf("a new Event may have %s", without)
		}
	}
}

// Each new field manager adds an entry to an object's managedFields.
func TestFieldManagerIsHeld(t *testing.T) {
	m := daemonset(t)
	for _, p := range []policy{m.pods, m.events} {
		if !strings.Contains(p.expressions(), `request.options.?fieldManager.orValue("") == "`+report.FieldManager+`"`) {
			t.Errorf("policy %s does not hold the field manager", p.Name)
		}
	}
}

// heldMetadata checks that a policy compares each field of an object's metadata
// with what it was before, but for some, and for those that no update changes.
func heldMetadata(t *testing.T, pinned string, but ...string) {
	t.Helper()
	// k8s.io/apiserver/pkg/registry/rest/update.go, BeforeUpdate, and for selfLink
	// k8s.io/apiserver/pkg/storage/api_object_versioner.go, PrepareObjectForStorage.
	kept := []string{
		"name", "namespace", "selfLink", "uid", "resourceVersion", "generation",
		"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
	}
	for _, field := range jsonNames(metav1.ObjectMeta{}) {
		if !slices.Contains(kept, field) && !slices.Contains(but, field) &&
			!strings.Contains(pinned, "object.metadata.?"+field+" == oldObject.metadata.?"+field) {
			t.Errorf("metadata.%s is not held", field)
		}
	}
}

// jsonNames returns the names that a struct's fields have in JSON.
func jsonNames(of any) []string {
	var out []string
	for i := range reflect.TypeOf(of).NumField() {
		name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

// held checks that a policy compares each field of an object, which has all of
// them set, with what it was before, but for some.
func held(t *testing.T, pinned string, full any, path string, but ...string) {
	t.Helper()
	text, err := yaml.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	all := reflect.ValueOf(full)
	for i := range all.NumField() {
		if all.Field(i).IsZero() && !all.Type().Field(i).Anonymous {
			t.Errorf("the full object lacks %s", all.Type().Field(i).Name)
		}
	}
	for _, f := range regexp.MustCompile(`(?m)^(\w+):`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(but, f[1]) && !strings.Contains(pinned, "object."+path+"?"+f[1]+" == oldObject."+path+"?"+f[1]) {
			t.Errorf("%s%s is not held", path, f[1])
		}
	}
}

// fullEvent has every field of an Event set.
func fullEvent() eventsv1.Event {
	now := metav1.NewTime(time.Unix(1, 0))
	return eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "x"}, EventTime: metav1.NewMicroTime(now.Time), Series: &eventsv1.EventSeries{},
		ReportingController: "x", ReportingInstance: "x", Action: "x", Reason: "x", Regarding: corev1.ObjectReference{Kind: "x"},
		Related: &corev1.ObjectReference{}, Note: "x", Type: "x", DeprecatedSource: corev1.EventSource{Host: "x"},
		DeprecatedFirstTimestamp: now, DeprecatedLastTimestamp: now, DeprecatedCount: 1,
	}
}

// fullStatus has every field of a pod's status set that an update can carry.
func fullStatus() corev1.PodStatus {
	now := metav1.NewTime(time.Unix(1, 0))
	return corev1.PodStatus{
		ObservedGeneration: 1, Phase: "x", Conditions: []corev1.PodCondition{{}}, Message: "x", Reason: "x",
		NominatedNodeName: "x", HostIP: "x", HostIPs: []corev1.HostIP{{}}, PodIP: "x", PodIPs: []corev1.PodIP{{}}, StartTime: &now,
		InitContainerStatuses: []corev1.ContainerStatus{{}}, ContainerStatuses: []corev1.ContainerStatus{{}}, QOSClass: "x",
		EphemeralContainerStatuses: []corev1.ContainerStatus{{}}, Resize: "x", ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{},
		AllocatedResources:          corev1.ResourceList{"cpu": {}}, Resources: &corev1.ResourceRequirements{},
		NodeAllocatableResourceClaimStatuses: []corev1.NodeAllocatableResourceClaimStatus{{}},
		VolumeHealth:                         []corev1.PodVolumeHealth{{}},
	}
}

// fetched makes sure that a program is there which make race fetches. The tests that take seconds (make unit) do without those that need it.
func fetched(t *testing.T, program string) {
	t.Helper()
	switch _, err := exec.LookPath(program); {
	case err != nil && testing.Short():
		t.Skip(program + " is not installed")
	case err != nil:
		t.Fatal(program + " is not installed; make race fetches it")
	}
}

// The alerts pass their tests under the oldest Prometheus that they are for and under Prometheus 3, and those tests notice when a rule is broken.
func TestAlerts(t *testing.T) {
	files := map[string]string{}
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml", "alerts_native_test.yaml"} {
		text, err := os.ReadFile("prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = string(text)
	}
	check := func(t *testing.T, rules, promtool string, args ...string) error {
		t.Helper()
		dir := t.TempDir()
		for file, content := range files {
			if file == "alerts.yaml" {
				content = rules
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	all := []string{"test", "rules", "alerts_test.yaml", "alerts_native_test.yaml"}
	for _, c := range []struct {
		promtool string
		args     []string
	}{
		{"promtool", all[:3]},
		{"promtool3", all},
		{"promtool3", []string{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"}},
	} {
		fetched(t, c.promtool)
		if err := check(t, files["alerts.yaml"], c.promtool, c.args...); err != nil {
			t.Fatalf("%s %v: %v", c.promtool, c.args, err)
		}
	}
	var rules struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(files["alerts.yaml"]), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			was := r["expr"]
			for what, other := range map[string]string{"never": "vector(0) > 1", "always": "vector(1)"} {
				r["expr"] = other
				broken, err := yaml.Marshal(rules)
				if err != nil {
					t.Fatal(err)
				}
				if check(t, string(broken), "promtool3", all...) == nil {
					t.Errorf("no test notices that %v%v %s fires", r["alert"], r["record"], what)
				}
			}
			r["expr"] = was
		}
	}
}
