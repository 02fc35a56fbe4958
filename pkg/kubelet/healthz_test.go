package kubelet

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	token = "the-token"
	// long is for answers that come, short for those that do not.
	long  = time.Minute
	short = 50 * time.Millisecond
)

// A kubelet is the other side: it wants the token, as a kubelet does, and
// remembers what it was sent.
type kubelet struct {
	*httptest.Server
	mu    sync.Mutex
	code  int
	body  string
	hang  bool
	holds chan struct{} // an answer waits until it is closed
	heard []string
}

func (k *kubelet) set(code int, body string, hang bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.code, k.body, k.hang = code, body, hang
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	auth := r.Header.Get("Authorization")
	k.heard = append(k.heard, auth)
	code, body, hang, holds := k.code, k.body, k.hang, k.holds
	k.mu.Unlock()
	if holds != nil {
		<-holds
	}
	switch {
	case hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // to return would be to answer
	case r.TLS != nil && auth != "Bearer "+token:
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	default:
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, body)
	}
}

func start(t *testing.T, secure bool) (*kubelet, *Client) {
	t.Helper()
	k := &kubelet{code: 200, body: "ok"}
	k.Server = httptest.NewUnstartedServer(k)
	k.Config.ErrorLog = nil
	if secure {
		k.StartTLS()
	} else {
		k.Start()
	}
	t.Cleanup(k.Close)
	dir := t.TempDir()
	c := &Client{URL: k.URL + "/healthz", CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"), limit: long}
	write(t, c.TokenFile, token+"\n")
	return k, c
}

// trust makes the kubelet's certificate one that the client knows.
func (k *kubelet) trust(t *testing.T, c *Client) {
	t.Helper()
	write(t, c.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// check asks, and compares what is known, and a part of why it is not.
func check(t *testing.T, c *Client, want, why string) {
	t.Helper()
	got, err := c.Check(context.Background())
	if got != want {
		t.Errorf("health %q, want %q", got, want)
	}
	switch {
	case why == "" && err != nil:
		t.Errorf("unknown: %v", err)
	case why != "" && (err == nil || !strings.Contains(err.Error(), why)):
		t.Errorf("unknown: %v, want %q", err, why)
	}
	if len(got) > maxTold {
		t.Errorf("%d bytes", len(got))
	}
}

func TestNew(t *testing.T) {
	for ip, want := range map[string]string{
		"":            "http://127.0.0.1:10248/healthz",
		"192.0.2.7":   "https://192.0.2.7:10250/healthz",
		"2001:db8::7": "https://[2001:db8::7]:10250/healthz",
	} {
		c, err := New(ip)
		if err != nil || c.URL != want {
			t.Errorf("New(%q) = %v, %v, want %s", ip, c, err, want)
		}
	}
	if _, err := New("node.example"); err == nil {
		t.Error("a name is taken for an address")
	}
}

const sick = "[+]ping ok\n[-]log failed: reason withheld\n[-]syncloop failed: reason withheld\nhealthz check failed\n"

func TestCheckVerified(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	k.set(500, "Authorization error (user=x, verb=get)", false)
	check(t, c, "", "answers 500")
	k.set(401, "Unauthorized", false)
	check(t, c, "", "refuses to tell its health (401)")
	k.set(200, "ok", false)
	check(t, c, "ok", "")
	k.set(500, sick, false)
	check(t, c, "failing checks: log, syncloop", "")
	k.set(500, strings.Repeat("[-]a-check-with-a-long-name failed\n", 100), false)
	if got := c.Sight(context.Background()); len(got.Health) != maxTold || !got.Answers || got.Refused {
		t.Errorf("%+v", got)
	}
	// It has taken the token before.
	k.set(500, "Authorization error (user=x, verb=get)", false)
	check(t, c, evidence.TokenRefused+" (500)", "")
	k.set(401, "Unauthorized", false)
	check(t, c, evidence.TokenRefused+" (401)", "")
	k.set(403, "Forbidden", false)
	check(t, c, "", "nodes/healthz")
	k.set(404, "not found", false)
	check(t, c, "", "answers 404")
	k.set(302, "", false)
	check(t, c, "", "answers 302")
}

func TestCheckByNodeName(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	c.URL = strings.Replace(c.URL, "127.0.0.1", "localhost", 1) // which the certificate is not for
	check(t, c, "", "not sent the token")
	c.NodeName = "another-node"
	check(t, c, "", "not sent the token")
	c.NodeName = "example.com" // net/http/httptest's
	check(t, c, "ok", "")
}

// The token goes to nobody who is not proved to be this node's kubelet.
func TestTokenStaysHere(t *testing.T) {
	k, c := start(t, true)
	check(t, c, "", "not sent the token") // no authority known
	check(t, c, "", "set serverTLSBootstrap")
	write(t, c.CAFile, "no certificate")
	check(t, c, "", "not sent the token")

	k.trust(t, c)
	c.URL = strings.Replace(c.URL, "127.0.0.1", "localhost", 1)
	check(t, c, "", "not sent the token")

	plain, p := start(t, false)
	check(t, p, "ok", "")
	plain.set(500, sick, false)
	check(t, p, "failing checks: log, syncloop", "")
	for _, k := range []*kubelet{k, plain} {
		for _, heard := range k.heard {
			if heard != "" {
				t.Errorf("sent %q", heard)
			}
		}
		if len(k.heard) == 0 {
			t.Error("was not asked")
		}
	}
}

func TestCheckWithoutToken(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	if err := os.Remove(c.TokenFile); err != nil {
		t.Fatal(err)
	}
	check(t, c, "", "no token")
}

// Silence means something only from a kubelet that has answered.
func TestCheckUnanswered(t *testing.T) {
	k, c := start(t, true)
	k.trust(t, c)
	k.set(200, "ok", true)
	c.limit = short
	check(t, c, "", "has never answered")
	k.set(200, "ok", false)
	c.limit = long
	check(t, c, "ok", "")
	k.set(200, "ok", true)
	c.limit = short
	check(t, c, "no answer from "+k.Listener.Addr().String()+" within 50ms", "")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, err := c.Check(ctx); got != "" || err == nil {
		t.Errorf("called off: %q, %v", got, err)
	}
	c.limit = long
	k.CloseClientConnections()
	k.Close()
	if got := c.Sight(context.Background()); !strings.Contains(got.Health, "refused") || !got.Refused || got.Answers {
		t.Errorf("%+v", got)
	}
	// A refusal is told even of a kubelet that has never answered, its health is not.
	if got := (&Client{URL: c.URL, limit: long}).Sight(context.Background()); got.Health != "" || !got.Refused {
		t.Errorf("%+v", got)
	}
}

// A handshake shows that the kubelet runs, whatever becomes of the question.
func TestSightOfAKubeletThatCannotAsk(t *testing.T) {
	k, c := start(t, true)
	unverified := c.Sight(context.Background())
	if unverified.Health != "" || !unverified.Answers {
		t.Errorf("not verified: %+v", unverified)
	}
	k.trust(t, c)
	k.set(200, "ok", true)
	c.limit = 3 * time.Second
	if got := c.Sight(context.Background()); !strings.HasPrefix(got.Health, "no answer from ") || !got.Answers || got.Refused {
		t.Errorf("no answer: %+v", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	silent := &Client{URL: "https://" + l.Addr().String() + "/healthz", limit: short}
	if got := silent.Sight(context.Background()); got.Answers || got.Refused {
		t.Errorf("a process that is stopped: %+v", got)
	}
}

// A process that is stopped has its connections accepted by the kernel.
func TestNothingLeaks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	hung, h := start(t, false)
	hung.set(200, "", true)
	before := runtime.NumGoroutine()
	for _, url := range []string{"https://" + l.Addr().String(), "http://" + l.Addr().String(), h.URL} {
		c := &Client{URL: url + "/healthz", limit: 5 * time.Millisecond}
		for range 50 {
			check(t, c, "", "has never answered")
		}
	}
	for end := time.Now().Add(long); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines are left, there were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

func FuzzFailingChecks(f *testing.F) {
	f.Add(sick)
	f.Fuzz(func(t *testing.T, body string) {
		got, _ := new(Client).health(&answer{code: 500, body: body}, "node")
		if len(got) > maxTold {
			t.Errorf("%d bytes", len(got))
		}
	})
}
