// Package api holds the causes of the layer of that name: those that hold up only
// the API object.
package api
