//go:build tape

package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/test/tape"
)

// record has all that the agent is handed written into the directory that NODEAGENT_TAPES names.
func record(a *agent.Agent, reader *node.Reader, log *slog.Logger) error {
	dir := os.Getenv("NODEAGENT_TAPES")
	if dir == "" {
		return nil
	}
	if err := tape.Record(dir, a, reader, log); err != nil {
		return fmt.Errorf("record tapes in NODEAGENT_TAPES: %w", err)
	}
	return nil
}
