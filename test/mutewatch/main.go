// Mutewatch is a proxy between a kubelet and its API server, as a load balancer is one: it ends the kubelet's TLS
// and asks the API server with the kubelet's own credentials. While a file is there what comes over the watches is held
// back that were there before the file, and all else goes through.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubelet's kubeconfig")
	listen := flag.String("listen", "", "the address to listen on")
	mute := flag.String("mute", "", "the file that holds watches back while it is there")
	flag.Parse()
	if err := serve(*kubeconfig, *listen, *mute); err != nil {
		log.Fatal(err)
	}
}

func serve(kubeconfig, listen, mute string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			_, missing := os.Stat(mute)
			if w := r.Request.URL.Query().Get("watch"); missing != nil && (w == "true" || w == "1") {
				r.Body = muted{r.Body, mute}
			}
			return nil
		},
	}
	server := &http.Server{Addr: listen, Handler: proxy, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	return server.ListenAndServeTLS("", "")
}

// A muted is the answer to a watch. What is read of it while the file is there is kept back until the file is gone.
type muted struct {
	io.ReadCloser
	mute string
}

func (m muted) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	for {
		if _, missing := os.Stat(m.mute); missing != nil {
			return n, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
