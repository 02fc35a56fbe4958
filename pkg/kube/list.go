package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
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

// maxObject bounds one object of a list, in bytes: etcd takes 1.5 MiB of the same encoding.
const maxObject = 4 << 20

// eachPod lists the pods of a node and decodes one at a time. It returns the version of the
// list. In this encoding the size of an object is told before it, and what one holds is nothing
// that the API server could not store: JSON has escapes that make it many times larger, and forms
// that are refused.
func (c *Client) eachPod(ctx context.Context, node string, options metav1.ListOptions, each func(*corev1.Pod) error) (version string, err error) {
	options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	options.Limit = 0
	body, err := c.core.Get().Resource("pods").SetHeader("Accept", runtime.ContentTypeProtobuf).VersionedParams(&options, c.parameters).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var list metav1.ListMeta
	var buf []byte
	err = eachItem(bufio.NewReaderSize(body, 64<<10), func(field uint64, size int64, r io.Reader) error {
		if size > maxObject {
			return fmt.Errorf("an object of %d bytes, and no more than %d are read", size, maxObject)
		}
		if int64(cap(buf)) < size {
			buf = make([]byte, size)
		}
		if _, err := io.ReadFull(r, buf[:size]); err != nil {
			return err
		}
		switch field {
		case fieldMetadata:
			return list.Unmarshal(buf[:size])
		case fieldItems:
			p := new(corev1.Pod)
			if err := p.Unmarshal(buf[:size]); err != nil {
				return err
			}
			return each(p)
		}
		return nil
	})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the list is cut off")
	}
	if err == nil && list.Continue != "" {
		err = errors.New("only a part of the list came, and all of it was asked for")
	}
	return list.ResourceVersion, err
}

// magic begins an object in the API server's protobuf encoding, whose wrapper, a runtime.Unknown, has the object in the
// field raw (k8s.io/apimachinery/pkg/runtime/serializer/protobuf). A list has its metadata and its items.
var magic = []byte("k8s\x00")

const (
	fieldRaw      = 2
	fieldMetadata = 1
	fieldItems    = 2
)

// eachItem hands on the fields of a list, each with its size; do reads all of it.
func eachItem(r *bufio.Reader, do func(field uint64, size int64, r io.Reader) error) error {
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(r, begin); err != nil {
		return err
	}
	if !bytes.Equal(begin, magic) {
		return fmt.Errorf("the API server answers in another encoding than %s", runtime.ContentTypeProtobuf)
	}
	whole := false
	for {
		field, size, err := next(r)
		if errors.Is(err, io.EOF) && whole {
			return nil
		}
		if err != nil {
			return err
		}
		if field != fieldRaw {
			if _, err := io.CopyN(io.Discard, r, size); err != nil {
				return err
			}
			continue
		}
		whole = true
		limited := &io.LimitedReader{R: r, N: size}
		raw := bufio.NewReaderSize(limited, 64<<10)
		for limited.N > 0 || raw.Buffered() > 0 {
			field, size, err := next(raw)
			if err == nil {
				err = do(field, size, raw)
			}
			if err != nil {
				return err
			}
		}
	}
}

// next reads the number of a field and its size. All fields here have one.
func next(r *bufio.Reader) (field uint64, size int64, err error) {
	tag, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	const sized = 2 // the wire type
	if tag&7 != sized {
		return 0, 0, fmt.Errorf("a field of wire type %d in a list", tag&7)
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, io.ErrUnexpectedEOF
	}
	if n > 1<<40 {
		return 0, 0, fmt.Errorf("a field of %d bytes in a list", n)
	}
	return tag >> 3, int64(n), nil
}
