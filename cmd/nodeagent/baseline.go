package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// baselineSocket is where a running agent tells `nodeagent capture`, which is
// executed in its container, what it knows of a pod from before the deletion. It is
// an abstract address (unix(7)), which only the agent's own network namespace has.
const baselineSocket = "@nodeagent"

// serveBaselines serves them until the context ends.
func serveBaselines(ctx context.Context, socket string, known http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listen for captures: %w", err)
	}
	server := newServer(known)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return nil
}

// baselines answers with what is known of a pod.
func baselines(known *agent.Baselines) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requested, err := time.Parse(time.RFC3339, r.URL.Query().Get("requested"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// Plain data can be encoded, and whoever asked may have gone.
		_ = json.NewEncoder(w).Encode(known.Of(r.URL.Query().Get("uid"), requested))
	})
}

// askBaseline returns what the agent beside this process knows of the pod, nil when
// it knows nothing or none runs.
func askBaseline(ctx context.Context, socket string, p *evidence.Pod) *evidence.Baseline {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	query := url.Values{"uid": {p.RuntimeUID}, "requested": {p.DeletionRequested.UTC().Format(time.RFC3339)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nodeagent/?"+query.Encode(), nil)
	if err != nil {
		return nil
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var b *evidence.Baseline
	if answer.StatusCode != http.StatusOK || json.NewDecoder(answer.Body).Decode(&b) != nil {
		return nil
	}
	return b
}
