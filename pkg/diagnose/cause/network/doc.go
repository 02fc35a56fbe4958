// Package network holds the causes of the layer of that name: the network plugins
// (CNI) that set up and tear down the network of a pod's sandbox.
package network
