package probe

import (
	"crypto/sha256"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCertificate(t *testing.T) {
	leaf := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("leaf")}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("secret")}))
	proc, root := kubeletDir(t, map[string]string{
		"pki/kubelet.crt": leaf + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("its signer")})),
		"pki/both.pem":    leaf + key, "pki/none": "x", "pki/large": strings.Repeat("x", largestCertificate+1),
	})
	pki := filepath.Join(root, "var/lib/kubelet/pki")
	if err := os.Symlink("kubelet.crt", filepath.Join(pki, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/var/lib/kubelet/pki", filepath.Join(root, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(pki, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProber(t)
	for name, why := range map[string]string{
		"/var/lib/kubelet/pki/kubelet.crt": "",
		"/var/lib/kubelet/pki/both.pem":    "it holds a private key",
		"/var/lib/kubelet/pki/none":        "no certificate in PEM form",
		"/var/lib/kubelet/pki/large":       "more than 65536 bytes",
		"/var/lib/kubelet/pki/link":        "too many levels of symbolic links",
		"/linked/kubelet.crt":              "too many levels of symbolic links",
		"/var/lib/kubelet/pki/dir":         "it is no regular file",
		"/var/lib/kubelet/pki/missing":     "no such file",
	} {
		sum, err := p.Certificate(t.Context(), proc, name)
		switch {
		case why == "" && (err != nil || sum != sha256.Sum256([]byte("leaf"))):
			t.Errorf("%s: %x, %v", name, sum, err)
		case why != "" && (err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
}
