//go:build !tape

package main

import (
	"log/slog"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/node"
)

// record does nothing: an agent that is built for users keeps nothing of what it reads.
func record(*agent.Agent, *node.Reader, *slog.Logger) error { return nil }
