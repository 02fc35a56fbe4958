// Package network holds the causes of the layer of that name: the network plugins
// (CNI) that take down what a pod's sandbox was connected to.
package network
