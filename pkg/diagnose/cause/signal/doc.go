// Package signal holds the causes of the layer of that name: what happens to the
// stop signal.
package signal
