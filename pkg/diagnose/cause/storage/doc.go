// Package storage holds the causes of the layer of that name: volumes that the
// kubelet cannot unmount.
package storage
