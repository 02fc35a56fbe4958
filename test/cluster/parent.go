package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// withGoRun ends the context when `go run`, which started this program, is ended: it
// passes no signal on, and `up` would go on with nobody waiting for it. Another parent
// may end as it likes.
func withGoRun(ctx context.Context) context.Context {
	parent := os.Getppid()
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || strings.TrimSpace(string(comm)) != "go" {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for os.Getppid() == parent && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return ctx
}
