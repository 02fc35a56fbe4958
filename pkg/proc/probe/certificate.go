package probe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
)

// largestCertificate bounds the file of the kubelet's certificate, in bytes.
const largestCertificate = 64 << 10

// Certificate asks for the SHA-256 of the first certificate in a file, by its absolute name on the host: that of the kubelet's own. A file
// with a private key in it is refused, and nothing of it leaves the helper.
func (p *Prober) Certificate(ctx context.Context, proc, name string) (sum [sha256.Size]byte, err error) {
	saw, err := p.askDir(ctx, request{What: certificate, Proc: proc, PID: 1, TID: 1, Owner: "kubelet", Dir: path.Dir(name), File: path.Base(name)})
	if err == nil && copy(sum[:], saw.Certificate) != len(sum) {
		err = fmt.Errorf("%s: no answer about it", name)
	}
	return sum, err
}

func (p *probe) certificate() {
	dir := p.kubelet()
	if dir == nil {
		return
	}
	defer dir.close()
	name := path.Join(p.Dir, p.File)
	if !p.announce(name) {
		return
	}
	fd, err := p.beneath(dir.fd, p.Dir, p.File, unix.O_RDONLY|unix.O_NONBLOCK, true)
	if err != nil {
		p.problem(name, err)
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		p.problem(name, errors.New("it is no regular file"))
		return
	}
	b, err := io.ReadAll(io.LimitReader(f, largestCertificate+1))
	if err == nil && len(b) > largestCertificate {
		err = fmt.Errorf("more than %d bytes: %w", largestCertificate, kernfile.ErrTooMany)
	}
	var sum [sha256.Size]byte
	if err == nil {
		sum, err = fingerprint(b)
	}
	if err != nil {
		p.problem(name, err)
		return
	}
	p.seen.Certificate = sum[:]
}

// fingerprint returns the SHA-256 of the first certificate in PEM form.
func fingerprint(text []byte) (sum [sha256.Size]byte, err error) {
	if bytes.Contains(text, []byte("PRIVATE KEY")) {
		return sum, errors.New("it holds a private key; name a file that holds the certificate only")
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return sha256.Sum256(block.Bytes), nil
		}
	}
	return sum, errors.New("it holds no certificate in PEM form")
}
