package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// baselineSocket is where a running agent tells `nodeagent capture`, which is
// executed in its container, what it knows of a pod from before. It is
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
	go func() { _ = server.Serve(trustedListener{listener}) }()
	return nil
}

// known answers captures: with a pod's Baseline, and below /reading with the agent's last reading of the
// pod.
func known(before *agent.Baselines, cases *verdict.Cases) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", baselines(before))
	mux.HandleFunc("GET /reading", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(cases.Reading(r.URL.Query().Get("uid")))
	})
	return mux
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
	var b *evidence.Baseline
	query := url.Values{"uid": {p.RuntimeUID}, "requested": {p.DeletionRequested.UTC().Format(time.RFC3339)}}
	if !ask(ctx, socket, "/?"+query.Encode(), &b) {
		return nil
	}
	return b
}

// askReading returns the last reading of the pod by the agent beside this process, nil when there is none. Since when something is
// as it is, and what containerd has forgotten, is known from it.
func askReading(ctx context.Context, socket string, p *evidence.Pod) *evidence.Pod {
	var last *evidence.Pod
	if !ask(ctx, socket, "/reading?"+url.Values{"uid": {p.UID}}.Encode(), &last) {
		return nil
	}
	return last
}

// ask decodes the answer of the agent beside this process, and reports whether there was
// one.
func ask(ctx context.Context, socket, path string, into any) bool {
	if os.Getenv(sealed) == "" {
		return false // a copy on the node: of the node's network anybody may have such a socket
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialTrusted(ctx, socket)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nodeagent"+path, nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK && json.NewDecoder(answer.Body).Decode(into) == nil
}
