package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeagent-io/nodeagent/pkg/why/collect"
)

// connect returns the clients and what is asked of all pods.
func (o *options) connect() (c collect.Clients, q collect.Query, err error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return c, q, err
	}
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = 50, 100
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{next, &o.ahead} })
	config.WarningHandler = rest.NoWarnings{} // about kinds that are only listed
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return c, q, err
	}
	if c.Metadata, err = metadata.NewForConfig(config); err != nil {
		return c, q, err
	}
	q = collect.Query{Selector: o.selector, Node: o.node}
	if !o.all {
		q.Namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace()
	}
	return c, q, err
}

// A dated transport reads the API server's time, in whole seconds, from each answer: what is late is late by that clock.
type dated struct {
	http.RoundTripper
	ahead *atomic.Int64
}

// WrappedRoundTripper has client-go find the transport that cancels requests.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			d.ahead.Store(int64(time.Until(at)))
		}
	}
	return answer, err
}

// clock returns the API server's time, and this machine's where the two differ by less than can be told.
func (o *options) clock() time.Time {
	ahead := time.Duration(o.ahead.Load())
	if ahead.Abs() < leastSkew {
		ahead = 0
	}
	return time.Now().Add(ahead)
}

// leastSkew is more than an answer takes and what its time leaves out.
const leastSkew = 5 * time.Second

// flags returns those by which kubectl finds the cluster, quoted for a shell, with a blank before each.
func (o *options) flags() string {
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"kubeconfig", o.config.KubeConfig}, {"context", o.config.Context}, {"cluster", o.config.ClusterName},
		{"user", o.config.AuthInfoName}, {"server", o.config.APIServer},
	} {
		if f.value != nil && *f.value != "" {
			fmt.Fprintf(&b, " --%s=%s", f.name, quoted(*f.value))
		}
	}
	return b.String()
}

// bare is what a shell takes as it is.
var bare = regexp.MustCompile(`^[-\w./:@%+=,]+$`)

func quoted(s string) string {
	if bare.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// usualTimeout is how long the requests for one answer may take, where --request-timeout does not say it.
const usualTimeout = 30 * time.Second

func (o *options) timeout() time.Duration {
	if d, err := clientcmd.ParseTimeout(*o.config.Timeout); err == nil && d > 0 {
		return d
	}
	return usualTimeout
}
