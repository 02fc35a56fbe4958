// Package kernel holds the causes of the layer of that name: processes that the
// kernel cannot end, or that are kept from ending.
package kernel
