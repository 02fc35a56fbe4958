// Package signal holds the causes of the layer of that name: what becomes of the
// stop signal.
package signal
