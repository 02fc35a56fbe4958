package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// podsOfNode returns what lists and watches the pods that are bound to a node. client-go has
// the first list streamed, one pod at a time, where the API server offers that (the feature
// WatchList). Where it does not, the list comes in one piece, whatever limit it is asked for
// with, from the API server's cache. It is read pod by pod then, too, and what trim leaves of
// one is all that is kept: a node may have 110 pods of 1.5 MiB, and the agent has 128 MiB.
func (c *Client) podsOfNode(node string, trim cache.TransformFunc) cache.ListerWatcher {
	source := cache.NewListWatchFromClient(c.core, "pods", corev1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	source.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		list := new(corev1.PodList)
		version, err := c.eachPod(ctx, node, options, func(p *corev1.Pod) error {
			obj, err := trim(p)
			if p, ok := obj.(*corev1.Pod); ok && err == nil {
				p.Kind = trimmed
				list.Items = append(list.Items, *p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		list.ResourceVersion = version
		return list, nil
	}
	return source
}

// trimmed is the kind of a pod of a list. The informer's transformer, which sees each pod, is not to
// trim it again: nobody can give a pod of the API this kind.
const trimmed = "TrimmedPod"

// once trims each pod once.
func once(trim cache.TransformFunc) cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok && p.Kind == trimmed {
			p.Kind = ""
			return p, nil
		}
		return trim(obj)
	}
}

// EachPod hands on the pods of a node as the API server has them now, one by one as they
// come, and returns an error when these were not all of them.
func (c *Client) EachPod(ctx context.Context, node string, each func(*corev1.Pod)) error {
	_, err := c.eachPod(ctx, node, metav1.ListOptions{}, func(p *corev1.Pod) error {
		each(p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return nil
}

// maxObject bounds one object of a list, in bytes of JSON. etcd takes 1.5 MiB in a shorter
// encoding.
const maxObject = 4 << 20

var errTooLarge = fmt.Errorf("an object of more than %d bytes", maxObject)

// eachPod lists the pods of a node and decodes one at a time. It returns the version of the
// list.
func (c *Client) eachPod(ctx context.Context, node string, options metav1.ListOptions, each func(*corev1.Pod) error) (version string, err error) {
	options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	options.Limit = 0
	body, err := c.core.Get().Resource("pods").SetHeader("Accept", runtime.ContentTypeJSON).VersionedParams(&options, c.parameters).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	bounded := &bounded{r: body}
	d := json.NewDecoder(bounded)
	object := func(v any) error {
		bounded.left = maxObject
		return d.Decode(v)
	}
	bounded.left = maxObject
	if err := delimiter(d, '{'); err != nil {
		return "", err
	}
	for d.More() {
		bounded.left = maxObject
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "metadata":
			var list metav1.ListMeta
			if err := object(&list); err != nil {
				return "", err
			}
			if list.Continue != "" {
				return "", errors.New("only a part of the list came, and all of it was asked for")
			}
			version = list.ResourceVersion
		case "items":
			if err := delimiter(d, '['); err != nil {
				return "", err
			}
			for d.More() {
				p := new(corev1.Pod)
				if err := object(p); err != nil {
					return "", err
				}
				if err := each(p); err != nil {
					return "", err
				}
			}
			bounded.left = maxObject
			if err := delimiter(d, ']'); err != nil {
				return "", err
			}
		default:
			if err := object(new(json.RawMessage)); err != nil {
				return "", err
			}
		}
	}
	return version, delimiter(d, '}')
}

// delimiter reads one of JSON's.
func delimiter(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && got != want {
		err = fmt.Errorf("the list has %v where %v belongs", got, want)
	}
	return err
}

// bounded reads no more than what is left for one object.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
