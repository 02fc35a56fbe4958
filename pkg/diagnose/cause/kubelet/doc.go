// Package kubelet holds the causes of the layer of that name: what the kubelet
// itself waits for or lacks, or why it does not do its part.
package kubelet
