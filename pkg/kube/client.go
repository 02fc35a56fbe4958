// Package kube makes the few requests to the API server that the agent needs.
//
// client-go's Clientset would work, but it brings every API group of Kubernetes
// with it. With only these two groups, the program is a third smaller, on disk
// and in the memory of each node.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// A Client makes requests with one identity. Its errors are those of the API
// server (k8s.io/apimachinery/pkg/api/errors), or of the connection to it.
type Client struct {
	core, events *rest.RESTClient
	parameters   runtime.ParameterCodec
	clock        *clock
}

// New returns a client; it connects when it is first used.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	began := time.Now()
	measured := &clock{now: time.Now, elapsed: func(now time.Time) time.Duration { return now.Sub(began) }}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		measured.next = next
		return measured
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	group := func(gv schema.GroupVersion, path string) (*rest.RESTClient, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath = &gv, path
		// Answers take a fraction of the time and memory to read. What is sent is JSON.
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientForConfigAndClient(c, client)
	}
	c := &Client{parameters: runtime.NewParameterCodec(scheme), clock: measured}
	if c.core, err = group(corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if c.events, err = group(eventsv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	return c, nil
}

// CheckNode returns an error when the cluster has no node of that name: whoever
// watches its pods would wait for them without end. Any other trouble with the API
// server passes: it is logged, and the server asked again until the context ends.
func (c *Client) CheckNode(ctx context.Context, name string, log *slog.Logger) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := c.core.Get().Resource("nodes").Name(name).Do(ctx).Error()
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case apierrors.IsNotFound(err):
			return fmt.Errorf("the cluster has no node %q", name)
		}
		log.Warn("cannot read the Node from the API server; retrying", "node", name, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// maxNode is how much is read of a Node, in bytes.
const maxNode = 2 << 20

// NodeReady returns the condition Ready of a node as it stands, not as a cache of the API
// server's has it; nil when it has none.
func (c *Client) NodeReady(ctx context.Context, name string) (*corev1.NodeCondition, error) {
	body, err := c.core.Get().Resource("nodes").Name(name).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// Its images and volumes would take memory.
	var node struct {
		Status struct{ Conditions []corev1.NodeCondition }
	}
	if err := json.NewDecoder(io.LimitReader(body, maxNode)).Decode(&node); err != nil {
		return nil, fmt.Errorf("the Node %s: %w", name, err)
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c, nil
		}
	}
	return nil, nil
}

// Pod returns a pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	out := new(corev1.Pod)
	return out, c.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(out)
}

// maxMetadata is how much is read of a pod's metadata, in bytes; an object has 1.5 MiB at
// most, and this process not much more to spare.
const maxMetadata = 512 << 10

// PodMetadata returns a pod's metadata and nothing else of it. Large ones are an error.
func (c *Client) PodMetadata(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	body, err := c.core.Get().Namespace(namespace).Resource("pods").Name(name).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxMetadata+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxMetadata {
		return nil, fmt.Errorf("the pod's metadata has more than %d bytes", maxMetadata)
	}
	out := new(metav1.PartialObjectMetadata)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("the pod's metadata: %w", err)
	}
	return out, nil
}

// PodElsewhere returns the name of a pod of a namespace that is on another node than the one; "" when there is none. Nothing but the
// metadata is read of it. One with large metadata is an error.
func (c *Client) PodElsewhere(ctx context.Context, namespace, node string) (string, error) {
	body, err := c.core.Get().Namespace(namespace).Resource("pods").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		VersionedParams(&metav1.ListOptions{FieldSelector: "spec.nodeName!=,spec.nodeName!=" + node, Limit: 1}, c.parameters).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(io.LimitReader(body, maxMetadata)).Decode(&list); err != nil {
		return "", fmt.Errorf("a pod of another node: %w", err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	return list.Items[0].Name, nil
}

// PatchPodStatus applies a strategic merge patch to a pod's status.
func (c *Client) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte, options metav1.PatchOptions) error {
	return c.core.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("pods").Name(name).SubResource("status").
		VersionedParams(&options, c.parameters).Body(patch).Do(ctx).Error()
}

// Event returns an Event.
func (c *Client) Event(ctx context.Context, namespace, name string) (*eventsv1.Event, error) {
	out := new(eventsv1.Event)
	return out, c.events.Get().Namespace(namespace).Resource("events").Name(name).Do(ctx).Into(out)
}

// How many Events about a pod are asked for, and how much is read of them, in bytes:
// those of a kubelet have two kilobytes, and somebody else's may have a megabyte.
const (
	maxFailures      = 50
	maxFailuresBytes = 512 << 10
)

// KillFailures returns the Events in which the kubelet says why it could not stop a
// pod. It is a list and not a watch: the API server keeps no cache of Events, so
// that a watch on each node would have etcd tell each of them all Events of the
// cluster. Large Events, which anybody may create, are an error.
func (c *Client) KillFailures(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
	out, err := c.kubeletEvents(ctx, namespace, fields.Set{"regarding.uid": string(uid), "reason": "FailedKillPod", "reportingController": "kubelet"})
	if err != nil {
		return nil, err
	}
	return out.Items, nil
}

// KubeletEvents returns all Events of kubelets about a pod, and an error where there are more than 50. It is
// a list for the same reason.
func (c *Client) KubeletEvents(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
	out, err := c.kubeletEvents(ctx, namespace, fields.Set{"regarding.uid": string(uid), "reportingController": "kubelet"})
	if err != nil {
		return nil, err
	}
	if out.Continue != "" {
		return nil, fmt.Errorf("there are more than %d Events about the pod", maxFailures)
	}
	return out.Items, nil
}

func (c *Client) kubeletEvents(ctx context.Context, namespace string, about fields.Set) (*eventsv1.EventList, error) {
	body, err := c.events.Get().Namespace(namespace).Resource("events").SetHeader("Accept", runtime.ContentTypeJSON).
		VersionedParams(&metav1.ListOptions{FieldSelector: about.String(), Limit: maxFailures}, c.parameters).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxFailuresBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFailuresBytes {
		return nil, fmt.Errorf("the Events about the pod have more than %d bytes", maxFailuresBytes)
	}
	out := new(eventsv1.EventList)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("the Events about the pod: %w", err)
	}
	return out, nil
}

// CreateEvent creates an Event in its namespace.
func (c *Client) CreateEvent(ctx context.Context, event *eventsv1.Event, options metav1.CreateOptions) error {
	return c.events.Post().Namespace(event.Namespace).Resource("events").
		VersionedParams(&options, c.parameters).Body(event).Do(ctx).Error()
}

// PatchEvent applies a strategic merge patch to an Event.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte, options metav1.PatchOptions) error {
	return c.events.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).
		VersionedParams(&options, c.parameters).Body(patch).Do(ctx).Error()
}
