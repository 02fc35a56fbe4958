// Package api holds the causes of the layer of that name: what holds up only the
// API object.
package api
