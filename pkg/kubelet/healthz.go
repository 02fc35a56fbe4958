package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// deadline is how long the answer may take, with the connection.
const deadline = 3 * time.Second

// The most bytes that are read of an answer, and that are reported of it.
const (
	maxBody = 16 << 10
	maxTold = 200
)

// serviceAccount is where a pod finds the authority of its cluster and its own
// token.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// getSigned is what to do about a kubelet that does not prove who it is.
const getSigned = "give the file of its certificate with --kubelet-cert-file, " +
	"or set serverTLSBootstrap in the kubelet's configuration and approve its certificate signing request"

// A Client asks one kubelet. Its fields may be set before the first request;
// its methods may be called side by side.
type Client struct {
	// URL is what is asked.
	URL string
	// NodeName is a name that the kubelet's certificate may carry instead of
	// the host in URL; certificates that a kubelet signs itself do.
	NodeName string
	// CAFile holds the certificates that the kubelet's is verified with, in
	// PEM form. TokenFile holds the token that a verified kubelet gets. Both
	// are read for each request, because both are replaced from time to time;
	// they may be absent.
	CAFile    string
	TokenFile string
	// Pin returns the SHA-256 of the certificate that the kubelet has signed itself and keeps on the node. A peer that presents that
	// one, and so has its key, is the kubelet as well. Nil where nobody can tell.
	Pin func(context.Context) ([sha256.Size]byte, error)

	limit   time.Duration
	reached atomic.Bool // has answered at least once
	took    atomic.Bool // has taken the token at least once

	pinned atomic.Pointer[[sha256.Size]byte] // what Pin returned last

	mu sync.Mutex
	// asks is the question for its metrics that is not answered yet, or of which nobody knows the answer
	// yet; nil when there is none. called is when the last one was put.
	asks   *question
	called time.Time
}

// New returns a client of the kubelet at the node's address (status.hostIP of
// the agent's own pod), with the pod's service account. Without an address it
// asks the kubelet's own port on the loopback address, for an agent in the
// host's network.
func New(nodeIP string) (*Client, error) {
	c := &Client{
		URL:       "http://127.0.0.1:10248/healthz",
		CAFile:    serviceAccount + "ca.crt",
		TokenFile: serviceAccount + "token",
		limit:     deadline,
	}
	if nodeIP == "" {
		return c, nil
	}
	addr, err := netip.ParseAddr(nodeIP)
	if err != nil {
		return nil, fmt.Errorf("the address of the node: %w", err)
	}
	c.URL = "https://" + netip.AddrPortFrom(addr, 10250).String() + "/healthz"
	return c, nil
}

// Sight asks the kubelet for its health, as Check does, and returns that and what else is
// seen on its port. Health is "" when Check returns an error.
func (c *Client) Sight(ctx context.Context) evidence.KubeletSight {
	s, err := c.check(ctx)
	if err != nil {
		s.Health = ""
	}
	return s
}

// Check returns the kubelet's health in at most 200 bytes: "ok", which of its
// checks fail, or that it has not answered. It takes at most three seconds. The
// error is why the health is not known.
//
// A missing answer says something about the kubelet only when there has been one
// before, because a network policy may keep the agent from it. One is likely:
// the agent's container does not start without a kubelet that works.
func (c *Client) Check(ctx context.Context) (string, error) {
	s, err := c.check(ctx)
	return s.Health, err
}

func (c *Client) check(ctx context.Context) (s evidence.KubeletSight, err error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return s, fmt.Errorf("the kubelet's address: %w", err)
	}
	qctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	a, err := c.ask(qctx, u, (*answer).readBody)
	s.Refused, s.Answers = errors.Is(err, syscall.ECONNREFUSED), a.spoke || err == nil
	switch {
	case err == nil:
		c.reached.Store(true)
		s.Health, err = c.health(&a, u.Host)
	case ctx.Err() != nil: // the caller's time, not the kubelet's
		err = fmt.Errorf("the request to the kubelet was cancelled: %w", context.Cause(ctx))
	case !c.reached.Load():
		err = fmt.Errorf("the kubelet at %s has never answered; it may be out of reach: %w", u.Host, err)
	case qctx.Err() != nil:
		s.Health, err = bound(fmt.Sprintf("no answer from %s within %s", u.Host, c.limit)), nil
	default:
		s.Health, err = bound(err.Error()), nil
	}
	return s, err
}

// An answer is what the kubelet said.
type answer struct {
	code int
	body string
	// unverified is why the certificate does not prove that this is the
	// kubelet; nil when it does, or where there is none.
	unverified error
	token      bool // the token was sent
	spoke      bool // a TLS handshake was completed
}

// ask makes the request on a connection of its own: one that was established
// before the kubelet hung could hide that it hangs. read takes what is wanted of an
// answer's body.
func (c *Client) ask(ctx context.Context, u *url.URL, read func(*answer, io.Reader) error) (a answer, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return a, err
	}
	defer func() { _ = conn.Close() }()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return a, err
	}
	if u.Scheme == "https" {
		t := tls.Client(conn, &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Verified below: an unverified kubelet is asked, but not trusted.
			InsecureSkipVerify: true, //nolint:gosec
		})
		if err := t.HandshakeContext(ctx); err != nil {
			return a, fmt.Errorf("TLS with %s: %w", u.Host, err)
		}
		conn, a.spoke = t, true
		if a.unverified = c.verify(ctx, t.ConnectionState().PeerCertificates, u.Hostname()); a.unverified == nil {
			if token, err := os.ReadFile(c.TokenFile); err == nil && len(token) > 0 {
				req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
				a.token = true
			}
		}
	}

	// The request uses this connection, so that what was verified is what is asked.
	given := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	transport := &http.Transport{DialContext: given, DialTLSContext: given, DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	a.code = resp.StatusCode
	if err := read(&a, resp.Body); err != nil {
		return a, fmt.Errorf("read the answer of %s: %w", u.Host, err)
	}
	return a, nil
}

// readBody keeps the beginning of a body.
func (a *answer) readBody(r io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(r, maxBody))
	a.body = string(body)
	return err
}

// verify checks that a known authority has signed the certificate for the node, or that it is the very one that the kubelet keeps there.
func (c *Client) verify(ctx context.Context, chain []*x509.Certificate, host string) error {
	err := c.signed(chain, host)
	if err == nil || c.Pin == nil || len(chain) == 0 {
		return err
	}
	sum := sha256.Sum256(chain[0].Raw)
	if known := c.pinned.Load(); known != nil && *known == sum {
		return nil
	}
	own, unread := c.Pin(ctx) // a kubelet may have been given another one
	if unread != nil {
		return fmt.Errorf("%w; nor is its own certificate known: %w", err, unread)
	}
	c.pinned.Store(&own)
	if own != sum {
		return fmt.Errorf("%w; nor is it the kubelet's own certificate", err)
	}
	return nil
}

// signed checks that a known authority has signed the certificate for the node.
func (c *Client) signed(chain []*x509.Certificate, host string) error {
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificates in %s", c.CAFile)
	}
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host})
	if _, other := errors.AsType[x509.HostnameError](err); other && c.NodeName != "" {
		_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: c.NodeName})
	}
	return err
}

// health returns what the answer means. Checks that fail are a 500 with a line
// for each (k8s.io/apiserver/pkg/server/healthz). A kubelet has the API server review
// tokens and what they are for: when it cannot ask, it answers 401, or 500 without such
// lines (InstallAuthFilter, pkg/kubelet/server/server.go). Of one that has taken the token
// before that says what is wrong.
func (c *Client) health(a *answer, host string) (string, error) {
	switch failing := failingChecks(a.body); {
	// Whoever takes the kubelet's port, as a pod with a hostPort may, can answer.
	case a.unverified != nil:
		return "", fmt.Errorf("the kubelet at %s answers, but does not prove that it is this node's, so it is not sent the token and not "+
			"believed; %s: %w", host, getSigned, a.unverified)
	case a.code == http.StatusOK:
		c.took.Store(a.token)
		return "ok", nil
	case a.code == http.StatusInternalServerError && failing != "":
		return bound("failing checks: " + failing), nil
	case (a.code == http.StatusUnauthorized || a.code == http.StatusInternalServerError) && a.token && c.took.Load():
		return fmt.Sprintf("%s (%d)", evidence.TokenRefused, a.code), nil
	case a.code == http.StatusUnauthorized && !a.token:
		return "", fmt.Errorf("the kubelet at %s answers, but there is no token to ask for its health with", host)
	case a.code == http.StatusUnauthorized, a.code == http.StatusForbidden:
		return "", fmt.Errorf("the kubelet at %s refuses to tell its health (%d); give the service account get on nodes/healthz, which "+
			"Kubernetes knows since 1.33", host, a.code)
	}
	return "", fmt.Errorf("the kubelet at %s answers %d when asked for its health", host, a.code)
}

// failingChecks returns the names of the checks in lines such as
// "[-]syncloop failed: reason withheld".
func failingChecks(body string) string {
	var names []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// bound returns a text cut to the bytes that are reported of an answer.
func bound(text string) string {
	if len(text) > maxTold {
		text = text[:maxTold]
	}
	return strings.ToValidUTF8(text, "")
}
