package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// selfSigned makes a certificate as a kubelet does that nobody signs one for (InitializeTLS, cmd/kubelet/app/server.go).
func selfSigned(t *testing.T, until time.Duration, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node1@1700000000"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(until), DNSNames: names,
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestPin(t *testing.T) {
	own, other := selfSigned(t, time.Hour, "node1"), selfSigned(t, time.Hour, "node1")
	expired, nameless := selfSigned(t, -time.Hour, "node1"), selfSigned(t, time.Hour)
	withoutKey := tls.Certificate{Certificate: own.Certificate, PrivateKey: other.PrivateKey} // the file is public
	for name, c := range map[string]struct {
		serves, kept tls.Certificate
		pin          error
		trusted      bool
		why          string
	}{
		"its own":                        {own, own, nil, true, ""},
		"its own, expired":               {expired, expired, nil, true, ""},
		"its own, without names, as AKS": {nameless, nameless, nil, true, ""},
		"a stranger's":                   {other, own, nil, false, "nor is it the kubelet's own certificate"},
		"its own, without the key":       {withoutKey, own, nil, false, "has never answered"},
		"no file": {own, own, errors.New("open /var/lib/kubelet/pki/kubelet.crt: no such file or directory"), false,
			"nor is its own certificate known"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kubelet{code: 200, body: "ok"}
			k.Server = httptest.NewUnstartedServer(k)
			k.Config.ErrorLog = log.New(io.Discard, "", 0)
			k.TLS = &tls.Config{Certificates: []tls.Certificate{c.serves}}
			k.StartTLS()
			t.Cleanup(k.Close)
			dir := t.TempDir()
			asked := 0
			client := &Client{URL: k.URL + "/healthz", CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"), limit: 10 * time.Second,
				Pin: func(context.Context) ([sha256.Size]byte, error) {
					asked++
					return sha256.Sum256(c.kept.Certificate[0]), c.pin
				}}
			write(t, client.TokenFile, token+"\n")
			want := ""
			if c.trusted {
				want = "ok"
			}
			for range 3 {
				check(t, client, want, c.why)
			}
			if sent := slices.Contains(k.heard, "Bearer "+token); sent != c.trusted {
				t.Errorf("the token was sent: %v", k.heard)
			}
			if c.trusted && asked != 1 {
				t.Errorf("the file was read %d times for one certificate", asked)
			}
		})
	}
}

// A kubelet that has been given another certificate is known by the next look at the file.
func TestPinChanges(t *testing.T) {
	first, second := selfSigned(t, time.Hour), selfSigned(t, time.Hour)
	kept := first
	k := &kubelet{code: 200, body: "ok"}
	k.Server = httptest.NewUnstartedServer(k)
	k.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{kept}}, nil
	}}
	k.StartTLS()
	t.Cleanup(k.Close)
	dir := t.TempDir()
	client := &Client{URL: k.URL + "/healthz", CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"), limit: 10 * time.Second,
		Pin: func(context.Context) ([sha256.Size]byte, error) { return sha256.Sum256(kept.Certificate[0]), nil }}
	write(t, client.TokenFile, token+"\n")
	check(t, client, "ok", "")
	kept = second
	check(t, client, "ok", "")
}
