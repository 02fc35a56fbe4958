// Package kernel holds the causes of the layer of that name: processes that the
// kernel cannot end, or that nobody lets end.
package kernel
