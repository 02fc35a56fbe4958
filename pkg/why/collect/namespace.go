package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeagent-io/nodeagent/pkg/why"
)

// Namespace reads what is left in a namespace that is being deleted, but for the time.
func Namespace(ctx context.Context, c Clients, name string) (*why.NamespaceView, error) {
	v := &why.NamespaceView{}
	var err error
	if v.Namespace, err = c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("namespace %q not found: it was deleted, or the name is wrong", name)
		}
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("you may not get namespace %q: ask for that permission", name)
		}
		return nil, errors.New(Explain(err, Query{}))
	}
	if v.Namespace.DeletionTimestamp == nil {
		return v, nil
	}
	v.Services, v.Unread = unavailable(ctx, c.Client)
	left(ctx, c, name, v)
	return v, nil
}

// left lists the metadata of all that is in the namespace.
func left(ctx context.Context, c Clients, namespace string, v *why.NamespaceView) {
	v.Unread = append(v.Unread, each(ctx, c, namespace, func(resource string, m *metav1.PartialObjectMetadata) {
		v.Left = append(v.Left, why.ObjectOf(resource, m))
	})...)
	// What has a finalizer holds the others up.
	slices.SortStableFunc(v.Left, func(a, b why.Object) int { return len(b.Finalizers) - len(a.Finalizers) })
}

// each goes through the metadata of all objects of a namespace but Events, and returns what could not be listed.
func each(ctx context.Context, c Clients, namespace string, do func(resource string, m *metav1.PartialObjectMetadata)) (unread []why.Unread) {
	lists, err := discovery.ToServerResourcesInterfaceWithContext(c.Client.Discovery()).ServerPreferredNamespacedResourcesWithContext(ctx)
	if err != nil {
		unread = append(unread, why.Unread{What: "some kinds", Why: reason(err)})
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || r.Name == "events" {
				continue
			}
			resource := strings.TrimSuffix(r.Name+"."+gv.Group, ".")
			err := all(ctx, metav1.ListOptions{}, c.Metadata.Resource(gv.WithResource(r.Name)).Namespace(namespace).List,
				func(m *metav1.PartialObjectMetadata) { do(resource, m) })
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
				unread = append(unread, why.Unread{What: resource, Why: reason(err)})
			}
		}
	}
	return unread
}

// readDependents reads what the foreground deletion of a pod waits for.
func readDependents(ctx context.Context, c Clients, v *why.View) {
	v.Dependents = make(map[string][]string)
	namespaces := make(map[string]bool)
	for _, p := range v.Pods {
		if slices.Contains(p.Finalizers, metav1.FinalizerDeleteDependents) {
			namespaces[p.Namespace] = true
		}
	}
	for namespace := range namespaces {
		v.Unread = append(v.Unread, each(ctx, c, namespace, func(resource string, m *metav1.PartialObjectMetadata) {
			for _, o := range m.OwnerReferences {
				if o.Kind == "Pod" && o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion {
					v.Dependents[string(o.UID)] = append(v.Dependents[string(o.UID)], resource+"/"+m.Name)
				}
			}
		})...)
	}
}

// unavailable returns the APIServices that are not available. Its group is not one that client-go has.
func unavailable(ctx context.Context, client kubernetes.Interface) ([]why.APIService, []why.Unread) {
	rest := client.CoreV1().RESTClient()
	if rest == nil {
		return nil, nil
	}
	body, err := rest.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, []why.Unread{{What: "apiservices", Why: reason(err)}}
	}
	return parseServices(body)
}

func parseServices(body []byte) ([]why.APIService, []why.Unread) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Service *struct{ Namespace, Name string }
			}
			Status struct {
				Conditions []struct {
					Type, Status, Reason, Message string
					LastTransitionTime            time.Time
				}
			}
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, []why.Unread{{What: "apiservices", Why: err.Error()}}
	}
	var out []why.APIService
	for _, item := range list.Items {
		for _, c := range item.Status.Conditions {
			if c.Type != "Available" || c.Status == string(corev1.ConditionTrue) {
				continue
			}
			s := why.APIService{Name: item.Metadata.Name, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
			if item.Spec.Service != nil {
				s.Service = item.Spec.Service.Namespace + "/" + item.Spec.Service.Name
			}
			out = append(out, s)
		}
	}
	return out, nil
}
