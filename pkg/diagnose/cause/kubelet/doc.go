// Package kubelet holds the causes of the layer of that name: what the kubelet
// itself waits for before it stops a container.
package kubelet
