// Package pki makes the certificates of one cluster: one authority, and a
// certificate for each identity that Kubernetes knows.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Authority signs every certificate of the cluster.
type Authority struct {
	CertPEM, KeyPEM []byte
	cert            *x509.Certificate
	key             crypto.Signer
}

// Pair is a certificate with its key, both PEM.
type Pair struct{ CertPEM, KeyPEM []byte }

// Identity is what a certificate says about its owner. Kubernetes takes the
// common name as user and the organizations as groups; hosts are names and
// addresses of a server, empty for a mere client.
type Identity struct {
	User   string
	Groups []string
	Hosts  []string
}

// New makes an authority that is valid for a year: a test cluster does not live longer.
func New(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate authority: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Authority{CertPEM: encodeCert(der), KeyPEM: keyPEM, cert: cert, key: key}, nil
}

// Load reads an authority that New has made, from its two PEM files.
func Load(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read certificate authority: its key cannot sign")
	}
	return &Authority{CertPEM: certPEM, KeyPEM: keyPEM, cert: pair.Leaf, key: key}, nil
}

// Issue signs a certificate for an identity. All serve as client certificates;
// those with hosts serve as server certificates as well.
func (a *Authority) Issue(id Identity) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.User, Organization: id.Groups},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(id.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range id.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", id.User, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{CertPEM: encodeCert(der), KeyPEM: keyPEM}, nil
}

// SigningKey makes the key that service account tokens are signed with.
func SigningKey() ([]byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return encodeKey(key)
}

// Elliptic curves, because emulated nodes verify every signature in software.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// The format of `openssl ecparam`, which the token signer of Kubernetes reads.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
