package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// One address that opens connections and says nothing keeps nobody out: neither
// others, nor who has the same address, as a pod in the node's network and the kubelet.
func TestOneAddressCannotTakeAllConnections(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	server.ReadHeaderTimeout, server.ReadTimeout = time.Minute, time.Minute // silent ones stay
	listener := newLimited(inner)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	from := func(address string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	}
	open := func(address string) int {
		listener.mu.Lock()
		defer listener.mu.Unlock()
		return len(listener.from[address])
	}
	for range 3 * maxOfAddress {
		c, err := from("127.0.0.2").DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ask := func(address string) error {
		transport := &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return from(address).DialContext(ctx, network, to)
		}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+inner.Addr().String(), nil)
		if err != nil {
			return err
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	if err := ask("127.0.0.1"); err != nil {
		t.Errorf("another address is not served: %v", err)
	}
	// Connections are accepted in the order in which they came: all silent ones have been.
	if n := open("127.0.0.2"); n != maxOfAddress {
		t.Errorf("%d silent connections of one address are open, of %d", n, 3*maxOfAddress)
	}
	if err := ask("127.0.0.2"); err != nil {
		t.Errorf("the address is not served because of its silent connections: %v", err)
	}
	// As little do many addresses together.
	for a := range maxConnections/maxOfAddress + 1 {
		for range maxOfAddress {
			c, err := from(fmt.Sprintf("127.0.1.%d", a+1)).DialContext(t.Context(), "tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
	}
	if err := ask("127.0.0.1"); err != nil {
		t.Errorf("an address with no connections is not served: %v", err)
	}
	listener.mu.Lock()
	defer listener.mu.Unlock()
	if listener.all > maxConnections {
		t.Errorf("%d connections are open", listener.all)
	}
}
