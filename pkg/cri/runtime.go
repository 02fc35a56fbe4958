package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// namespace is where containerd's CRI plugin keeps its containers
// (internal/cri/constants/constants.go in containerd).
const namespace = "k8s.io"

// How long an answer may take. containerd itself gives a shim 2 s to answer for
// its state (plugins/services/tasks/local.go, stateTimeout).
const (
	healthDeadline = 2 * time.Second
	readDeadline   = 3 * time.Second
	taskDeadline   = 3 * time.Second
)

// A Runtime is the containerd of this node. Its methods may be called side by
// side, and return when their context ends.
type Runtime struct {
	sockets  []string               // where containerd's may be
	socket   atomic.Pointer[string] // the one that has answered, or that was dialled last
	others   sync.Map               // those of sockets on which somebody listens who has no CRI plugin
	now      func() time.Time
	health   time.Duration // the deadlines, shorter in tests
	read     time.Duration
	task     time.Duration
	records  records
	images   stopSignals
	silences silences
	requests requests

	asking   sync.Mutex // held while the health is asked for, for health at most
	service  evidence.ContainerdService
	asked    time.Time   // when service is from
	answered atomic.Bool // containerd has answered at least once

	listing sync.Mutex // held while the lists are asked for
	lists   []evidence.List

	mu   sync.Mutex
	conn *connection // nil after Close

	listener atomic.Pointer[listener] // nil before the first connection
}

// A connection is one gRPC channel to the socket, and the clients on it.
type connection struct {
	*grpc.ClientConn
	containerd *client.Client
	cri        runtimeapi.RuntimeServiceClient
	// dialed is the error of the last attempt to connect to the socket; gRPC
	// passes on only its text.
	dialed atomic.Pointer[error]
	// made is when that was, in nanoseconds since 1970: a containerd that has been
	// started anew has to be connected to anew.
	made atomic.Int64
	// answered says that a request has been answered since then: gRPC lets requests go a
	// moment before it says that it is connected, and lets them fail a moment before it says
	// that it is not.
	answered atomic.Bool
}

// errClosed is the error of every request after Close.
var errClosed = errors.New("the connection to containerd is closed")

// Sockets are where distributions have containerd's socket: K3s and RKE2; k0s; MicroK8s; most. The first one is taken that somebody with a CRI
// plugin listens on: beside the kubelet's containerd another one may run, as docker's.
var Sockets = []string{
	"/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock", "/run/containerd/containerd.sock",
}

// Open prepares to read the containerd that listens on the first socket that is there, each an absolute
// path with or without unix:// before it. It does not connect: Health returns
// the error when there is no containerd, or another runtime.
func Open(sockets ...string) (*Runtime, error) {
	r := &Runtime{
		now:    time.Now,
		health: healthDeadline, read: readDeadline, task: taskDeadline, requests: newRequests(),
	}
	for _, socket := range sockets {
		path := strings.TrimPrefix(socket, "unix://")
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("containerd's socket %q is not an absolute path; it is usually /run/containerd/containerd.sock", socket)
		}
		r.sockets = append(r.sockets, path)
	}
	c, err := r.dial()
	if err != nil {
		return nil, err
	}
	r.conn = c
	return r, nil
}

// connect connects to the socket that has answered, or else to the first one on which somebody listens.
func (r *Runtime) connect(ctx context.Context) (conn net.Conn, err error) {
	dial := func(name string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", name) }
	if s := r.socket.Load(); s != nil && r.answered.Load() {
		return dial(*s)
	}
	among := slices.DeleteFunc(slices.Clone(r.sockets), func(s string) bool { return !isSocket(s) })
	if len(among) == 0 {
		among = r.sockets[len(r.sockets)-1:]
	}
	without := slices.DeleteFunc(slices.Clone(among), func(s string) bool { _, other := r.others.Load(s); return other })
	if len(without) > 0 {
		among = without
	}
	for i := range among {
		r.socket.Store(&among[i])
		if conn, err = dial(among[i]); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// isSocket reports whether there is a socket of that name.
func isSocket(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// Blind returns why nothing can be read: there is no socket, and there has never been one. nil when there is.
func (r *Runtime) Blind() error {
	if r.answered.Load() || slices.ContainsFunc(r.sockets, isSocket) {
		return nil
	}
	return r.noSocket()
}

func (r *Runtime) noCRI() error {
	return fmt.Errorf("the CRI plugin of containerd at %s is off; look for cri in disabled_plugins of its configuration", r.at())
}

func (r *Runtime) noSocket() error {
	var all []string
	for _, s := range r.sockets {
		all = append(all, onHost(s))
	}
	return fmt.Errorf("%scontainerd's socket: there is no %s; set --containerd-socket to the path at which nodeagent sees it",
		evidence.NotFound, strings.Join(all, ", "))
}

// at names the socket for an operator.
func (r *Runtime) at() string {
	if s := r.socket.Load(); s != nil {
		return onHost(*s)
	}
	return onHost(r.sockets[0])
}

// onHost returns what a path is called on the host that leads there through its first process.
func onHost(name string) string {
	if i := strings.Index(name, HostRoot+"/"); i >= 0 {
		return name[i+len(HostRoot):]
	}
	return name
}

// HostRoot is below /proc the root directory of the host's first process.
const HostRoot = "/1/root"

// Close ends the connection. Requests that wait for an answer return.
func (r *Runtime) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// current returns the connection as it is.
func (r *Runtime) current() (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil, errClosed
	}
	return r.conn, nil
}

// usable returns the connection, or a new one if it could not be established.
// gRPC repeats the error of its last attempt until it makes another one, at
// times of its own, and would keep on connecting to a hung containerd, whose
// queue of connections nobody empties.
func (r *Runtime) usable() (*connection, error) {
	c, err := r.current()
	if err != nil {
		return nil, err
	}
	s := c.GetState()
	if s == connectivity.Ready || s == connectivity.Idle || s == connectivity.Connecting && c.answered.Load() {
		return c, nil
	}
	return r.renew()
}

// renew puts a new connection in place of the one there is.
func (r *Runtime) renew() (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil, errClosed
	}
	c, err := r.dial()
	if err != nil {
		return nil, err
	}
	_ = r.conn.Close() // it is not used any more
	r.conn = c
	return c, nil
}

// dial makes a connection that connects when it is first used.
func (r *Runtime) dial() (*connection, error) {
	c := new(connection)
	conn, err := grpc.NewClient("passthrough:///containerd", append(r.requests.onlyReads(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c.answered.Store(false)
			conn, err := r.connect(ctx)
			if err == nil {
				r.listener.Store(listenerOf(conn))
			}
			c.dialed.Store(&err)
			c.made.Store(r.now().UnixNano())
			return conn, err
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(defaults.DefaultMaxRecvMsgSize)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("containerd's socket %s: %w", r.at(), err)
	}
	c.ClientConn, c.cri = conn, runtimeapi.NewRuntimeServiceClient(conn)
	if c.containerd, err = client.NewWithConn(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("containerd's socket %s: %w", r.at(), err)
	}
	return c, nil
}

// dialError returns why the last attempt to connect to the socket failed, nil if
// it did not.
func (c *connection) dialError() error {
	if err := c.dialed.Load(); err != nil {
		return *err
	}
	return nil
}

// question returns the context of one request: with a deadline, and in the
// namespace of the CRI plugin.
func question(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(namespaces.WithNamespace(ctx, namespace), limit)
}

// hasTime reports whether a request can be given its whole deadline. One that is
// cut short would prove nothing by not being answered.
func hasTime(ctx context.Context, limit time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) >= limit
}
