package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// One address that opens connections and says nothing does not keep others out,
// and gets its own place back when it closes one.
func TestOneAddressCannotTakeAllConnections(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	server.ReadHeaderTimeout, server.ReadTimeout = time.Minute, time.Minute // silent ones stay
	go func() { _ = server.Serve(newLimited(inner)) }()
	t.Cleanup(func() { _ = server.Close() })
	from := func(address string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	}
	var open []net.Conn
	for range 3 * maxOfAddress {
		c, err := from("127.0.0.2").DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
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
	if err := ask("127.0.0.2"); err == nil {
		t.Error("the address that holds too many connections is served")
	}
	for _, c := range open {
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); ask("127.0.0.2") != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the address is not served after it has closed its connections")
		}
	}
}
