// Package tunnel lets kube-apiserver reach what is inside the nodes (kubelet, pods,
// Services), whose addresses mean nothing on this machine. It serves HTTP CONNECT
// on a socket and dials from inside the node that owns the address.
package tunnel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Serve answers until ctx ends.
func Serve(ctx context.Context, d state.Dir, nodes []state.Node) error {
	config, err := node.ShellServer(d)
	if err != nil {
		return err
	}
	t := &tunnel{nodes: nodes, links: map[string]*link{}}
	for _, n := range nodes {
		t.links[n.Name] = &link{dir: d, node: n}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return listen(ctx, d.TunnelSocket(), func(conn net.Conn) { t.serve(ctx, conn) })
	})
	group.Go(func() error {
		return listen(ctx, d.ShellSocket(), func(conn net.Conn) { t.serveShell(ctx, conn, config) })
	})
	return group.Wait()
}

func listen(ctx context.Context, socket string, serve func(net.Conn)) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the socket of an earlier tunnel: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen at the tunnel's end: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		go serve(conn)
	}
}

type tunnel struct {
	nodes []state.Node
	links map[string]*link
}

func (t *tunnel) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	target, err := t.dial(ctx, req)
	if err != nil {
		slog.Warn("connect", "to", req.Host, "error", err)
		fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nX-Error: %q\r\n\r\n", err.Error())
		return
	}
	defer target.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(target, in)
		if c, ok := target.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	}()
	_, _ = io.Copy(conn, target)
}

func (t *tunnel) dial(ctx context.Context, req *http.Request) (net.Conn, error) {
	if req.Method != http.MethodConnect {
		return nil, fmt.Errorf("method %s, want CONNECT", req.Method)
	}
	to, err := netip.ParseAddrPort(req.Host)
	if err != nil {
		return nil, err
	}
	owner, ok := state.Owner(t.nodes, to.Addr())
	if !ok {
		return nil, fmt.Errorf("no node owns %s", to.Addr())
	}
	return t.links[owner.Name].dial(ctx, to.String())
}

// link is the connection to one node. It is made when it is needed, and made anew
// when it is lost.
type link struct {
	dir  state.Dir
	node state.Node

	mu     sync.Mutex
	client *ssh.Client
}

func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := l.connected(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := client.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %s from %s: %w", address, l.node.Name, err)
	}
	return conn, nil
}

func (l *link) connected(ctx context.Context) (*ssh.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	client, err := node.Dial(ctx, l.dir, l.node)
	if err != nil {
		return nil, err
	}
	slog.Info("connected", "node", l.node.Name)
	l.client = client
	go l.watch(client)
	return client, nil
}

// watch forgets a connection that has ended, or that a node which was stopped and
// started again no longer knows of.
func (l *link) watch(client *ssh.Client) {
	gone := make(chan struct{})
	go func() {
		_ = client.Wait()
		close(gone)
	}()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for alive := true; alive; {
		select {
		case <-gone:
			alive = false
		case <-tick.C:
			answered := make(chan error, 1)
			go func() {
				_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			}()
			select {
			case err := <-answered:
				alive = err == nil
			case <-time.After(60 * time.Second):
				alive = false
			}
		}
	}
	client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == client {
		l.client = nil
	}
	slog.Warn("connection lost", "node", l.node.Name)
}
