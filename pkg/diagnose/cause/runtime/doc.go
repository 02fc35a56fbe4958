// Package runtime holds the causes of the layer of that name: containerd, its
// shims and runc.
package runtime
